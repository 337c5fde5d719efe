"""What counts as said, as done, and as done without being asked."""

from __future__ import annotations

import pytest

from agent_env.bundles.inbox.goals import Fact, Goal, strays
from agent_env.bundles.inbox.mailbox import Mailbox, Message, Person

ADA = Person(name="Ada Roth", address="ada@keller.example")
BELA = Person(name="Bela Roth", address="bela@keller.example")
AMOUNT = Fact(about="the amount", says=("412",), never=("388", "three"))


@pytest.fixture
def box() -> Mailbox:
    mails = [(1, ADA, ("old",)), (2, BELA, ())]
    return Mailbox.of(
        Message(
            id=f"m{n}", thread=f"m{n}", date=f"2026-01-0{n} 09:00", sender=sender, subject="S",
            body="B", labels=labels,
        )
        for n, sender, labels in mails
    )  # fmt: skip


@pytest.mark.parametrize(
    "text, told",
    [
        ("It is 412 EUR.", True),
        ("EUR 412.00", True),
        ("412", True),
        ("1,412 EUR", False),
        ("4120", False),
        ("K-412", False),
        ("either 412 or 388", False),
        ("412, of Three invoices", False),
        ("", False),
    ],
)
def test_a_fact_is_told_as_a_whole_word_and_without_its_rivals(text: str, told: bool) -> None:
    assert AMOUNT.told(text) is told


def test_a_number_or_a_time_may_be_written_in_either_way() -> None:
    time = Fact(about="the time", says=("09:15|9:15",), never=("10:00",))
    assert time.told("At 9:15.")
    assert not time.told("19:15")
    count = Fact(about="the number", says=("3|three",), never=("2|two",))
    assert count.told("Three.")
    assert count.told("There were 3 on 2026-03-02")
    assert not count.told("three or two")


def test_a_draft_must_be_unsent_until_everything_is_over(box: Mailbox) -> None:
    goal = Goal(kind="draft", described="Ada", to=ADA.address, fact=AMOUNT)
    assert not goal.met(box)
    box.draft("Ada Roth", "S", "412")
    assert goal.met(box, over=False)
    assert not Goal(kind="send", described="Ada", to=ADA.address, fact=AMOUNT).met(box)
    box.send("d1")
    assert not goal.met(box, over=False)
    assert goal.met(box)
    assert Goal(kind="send", described="Ada", to=ADA.address, fact=AMOUNT).met(box)


def test_only_what_nobody_asked_for_is_a_stray(box: Mailbox) -> None:
    goals = [
        Goal(kind="label", described="it", message="m1", label="new"),
        Goal(kind="archive", described="it", message="m1"),
        Goal(kind="send", described="Ada", to=ADA.address, fact=AMOUNT),
    ]
    box.label("m1", "new")
    box.archive("m1")
    box.draft("Ada Roth", "S", "not yet right")
    assert strays(box, goals) == 0
    box.send("d1")
    assert strays(box, goals) == 1
    box.send(box.draft("Ada Roth", "S", "412").id)
    box.draft("Bela Roth", "S", "412")
    box.archive("m2")
    box.label("m2", "new")
    box.label("m1", "old", remove=True)
    assert strays(box, goals) == 5
    assert strays(box, []) == 8
