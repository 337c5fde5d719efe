"""The mailbox by itself: what can be found, done and not done."""

from __future__ import annotations

import pytest

from agent_env.bundles.inbox.mailbox import FOUND_AT_MOST, Mailbox, MailboxError, Message, Person

ADA = Person(name="Ada Roth", address="ada.roth@keller.example")
SHOP = Person(name="Chair & Co", address="service@chair-co.example")


def message(number: int, sender: Person = ADA, subject: str = "Hello", body: str = "") -> Message:
    return Message(
        id=f"m{number}",
        thread=f"m{number}",
        date=f"2026-03-{number:02} 09:00",
        sender=sender,
        subject=subject,
        body=body,
        labels=("old",) if number == 1 else (),
    )


@pytest.fixture
def box() -> Mailbox:
    return Mailbox.of(
        [
            message(1, subject="Lunch"),
            message(2, SHOP, "Order confirmed: red chair", "The order number is K-1234."),
            message(3, SHOP, "Order confirmed: blue chair", "The order number is K-9876."),
        ]
    )


def found(box: Mailbox, query: str) -> list[str]:
    return [message.id for message in box.search(query)]


def test_the_best_match_comes_first_and_the_newer_of_equals(box: Mailbox) -> None:
    assert found(box, "order red") == ["m2", "m3"]
    assert found(box, "the Order from Chair") == ["m3", "m2"]
    assert found(box, "K-1234") == ["m2"]
    assert found(box, "ada.roth@keller.example") == found(box, "lunch") == ["m1"]
    assert found(box, "old") == ["m1"]
    assert found(box, "elephant") == []


def test_a_search_without_words_shows_the_newest_and_none_shows_more_than_eight(
    box: Mailbox,
) -> None:
    assert found(box, "") == ["m3", "m2", "m1"]
    many = Mailbox.of(message(number) for number in range(1, 20))
    assert len(found(many, "")) == len(found(many, "March hello")) == FOUND_AT_MOST


def test_archived_mail_is_still_found(box: Mailbox) -> None:
    box.archive("m2")
    assert box.archived == {"m2"}
    assert found(box, "red chair")[0] == "m2"


def test_labels_are_names_without_case_and_come_off_again(box: Mailbox) -> None:
    box.label("m2", " To  Pay ")
    assert box.labels["m2"] == {"to pay"}
    box.label("m2", "to pay", remove=True)
    assert box.labels["m2"] == set()


def test_a_new_draft_to_the_same_person_replaces_the_unsent_one(box: Mailbox) -> None:
    first = box.draft("Ada Roth", "Hi", "one")
    assert box.draft("ADA.ROTH@keller.example", "Hi", "two") is first
    assert (first.id, first.to, first.body) == ("d1", ADA.address, "two")
    box.send("d1")
    assert box.draft(str(ADA), "Hi", "three").id == "d2"
    assert [letter.sent for letter in box.letters.values()] == [True, False]


def test_what_cannot_be_done_says_what_can(box: Mailbox) -> None:
    with pytest.raises(MailboxError, match="search shows the ids"):
        box.read("m99")
    with pytest.raises(MailboxError, match="m99"):
        box.archive("m99")
    with pytest.raises(MailboxError, match="needs a name"):
        box.label("m1", "  ")
    with pytest.raises(MailboxError, match="m2 has no label 'old'"):
        box.label("m2", "old", remove=True)
    with pytest.raises(MailboxError, match="give a sender's name or address"):
        box.draft("Nobody", "Hi", "text")
    with pytest.raises(MailboxError, match="no text"):
        box.draft("Ada Roth", "Hi", " ")
    with pytest.raises(MailboxError, match="write it with draft first"):
        box.send("d1")
    box.send(box.draft("Ada Roth", "Hi", "text").id)
    with pytest.raises(MailboxError, match="sent already"):
        box.send("d1")
