"""A mailbox: messages in threads, labels, an archive, drafts and sent mail.

Plain state and the few things one can do to it; every rule about what is asked for lies elsewhere.
"""

from __future__ import annotations

import re
from calendar import month_name
from collections.abc import Iterable
from dataclasses import dataclass, field

FOUND_AT_MOST = 8
_BETWEEN = re.compile(r"[\W_]+")
_COMMON = frozenset(
    ("a", "about", "an", "and", "for", "from", "in", "is", "of", "on", "or", "s", "the", "to")
)


class MailboxError(ValueError):
    """What was asked of the mailbox can't be done; the message says what can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody with an address; both name and address are unique in a mailbox."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} <{self.address}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A received mail. `date` is "YYYY-MM-DD HH:MM"; `thread` the id of the thread's first."""

    id: str
    thread: str
    date: str
    sender: Person
    subject: str
    body: str
    labels: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Letter:
    """A mail of one's own: a draft until it is sent."""

    id: str
    to: str
    subject: str
    body: str
    sent: bool = False


@dataclass(slots=True)
class Mailbox:
    """Messages by id, oldest first, and what was done to them."""

    messages: dict[str, Message]
    labels: dict[str, set[str]] = field(default_factory=dict)
    archived: set[str] = field(default_factory=set)
    letters: dict[str, Letter] = field(default_factory=dict)

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Mailbox:
        by_id = {message.id: message for message in messages}
        return cls(by_id, {id: set(message.labels) for id, message in by_id.items()})

    def search(self, query: str) -> list[Message]:
        """Those with the most of the query's words, newest first; without words the newest.

        At most 8, from the inbox and the archive. Sender, subject, text, labels and the month's
        name are searched; case and common words don't count.
        """
        words = [plain for word in query.split() if (plain := _plain(word)).strip()]
        words = [word for word in words if word.strip() not in _COMMON]
        hits = [(self._hits(message, words), message) for message in self.messages.values()]
        found = [(count, message) for count, message in hits if count or not words]
        found.sort(key=lambda hit: (hit[0], hit[1].date, hit[1].id), reverse=True)
        return [message for _, message in found[:FOUND_AT_MOST]]

    def read(self, message_id: str) -> Message:
        """Raises MailboxError."""
        if message_id not in self.messages:
            raise MailboxError(f"there is no message {message_id!r}; search shows the ids")
        return self.messages[message_id]

    def label(self, message_id: str, label: str, *, remove: bool = False) -> None:
        """Labels are kept in lower case. Raises MailboxError."""
        labels = self.labels[self.read(message_id).id]
        name = " ".join(label.lower().split())
        if not name:
            raise MailboxError("a label needs a name")
        if remove and name not in labels:
            raise MailboxError(f"{message_id} has no label {name!r}")
        (labels.discard if remove else labels.add)(name)

    def archive(self, message_id: str) -> None:
        """Out of the inbox; searching still finds it. Raises MailboxError."""
        self.archived.add(self.read(message_id).id)

    def draft(self, to: str, subject: str, body: str) -> Letter:
        """Write a mail; an unsent one to the same person is replaced. Raises MailboxError."""
        address = self.address(to)
        if not body.strip():
            raise MailboxError("the mail has no text")
        for letter in self.letters.values():
            if letter.to == address and not letter.sent:
                letter.subject, letter.body = subject, body
                return letter
        letter = Letter(id=f"d{len(self.letters) + 1}", to=address, subject=subject, body=body)
        self.letters[letter.id] = letter
        return letter

    def send(self, draft_id: str) -> Letter:
        """Send a draft, once and for all. Raises MailboxError."""
        letter = self.letters.get(draft_id)
        if letter is None:
            raise MailboxError(f"there is no draft {draft_id!r}; write it with draft first")
        if letter.sent:
            raise MailboxError(f"{draft_id} was sent already")
        letter.sent = True
        return letter

    def address(self, to: str) -> str:
        """The address of a name or address that the mailbox knows. Raises MailboxError."""
        wanted = to.strip().lower()
        for person in self.people():
            if wanted in (person.name.lower(), person.address.lower(), str(person).lower()):
                return person.address
        raise MailboxError(f"nobody in this mailbox is {to!r}; give a sender's name or address")

    def people(self) -> list[Person]:
        """Everybody who ever wrote, in order of their first mail."""
        return list(dict.fromkeys(message.sender for message in self.messages.values()))

    def _hits(self, message: Message, words: list[str]) -> int:
        labels = " ".join(sorted(self.labels[message.id]))
        month = month_name[int(message.date[5:7])]
        text = f"{message.sender} {message.subject} {message.body} {labels} {month}"
        there = _plain(text)
        return sum(word in there for word in words)


def _plain(text: str) -> str:
    """Lower case, one space for all that isn't a letter or digit, and one at either end.

    So a word is found whole, and a number or address also by its parts.
    """
    return f" {_BETWEEN.sub(' ', text.lower()).strip()} "
