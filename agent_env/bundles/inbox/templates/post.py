"""Writes a consistent mailbox: one address a person, no date twice, replies after their mail."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from agent_env.bundles.inbox import vocabulary as words
from agent_env.bundles.inbox.mailbox import Person
from agent_env.bundles.inbox.story import Mail

FIRST_DAY = datetime(2026, 1, 5)  # noqa: DTZ001 - a date in a story, nobody's clock
DAYS = 120
OWN_COMPANY = "keller.example"


@dataclass(frozen=True)
class _Written:
    sender: Person
    subject: str
    body: str
    date: datetime
    thread: int


class Post:
    """Collects mail in any order; `deliver` sorts it and gives it ids."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._written: list[_Written] = []
        self._firsts = rng.sample(words.FIRST_NAMES, len(words.FIRST_NAMES))
        self._lasts = rng.sample(words.LAST_NAMES, len(words.LAST_NAMES))
        self._minutes: set[datetime] = set()

    def person(self, first: str | None = None) -> Person:
        """A colleague nobody else in this mailbox is named like, but for a given first name."""
        first, last = first or self._firsts.pop(), self._lasts.pop()
        address = f"{first}.{last}@{OWN_COMPANY}".lower()
        return Person(name=f"{first} {last}", address=address)

    def company(self, name: str, box: str) -> Person:
        """A company's address, such as billing@nordwind-energy.example."""
        domain = re.sub(r"\W+", "-", name.lower())
        return Person(name=name, address=f"{box}@{domain}.example")

    def mail(self, sender: Person, subject: str, body: str, day: int) -> int:
        """Post a mail on a day, 0 being the first; returns what `deliver` knows it by."""
        return self._post(sender, subject, body, self._minute(day), len(self._written))

    def reply(self, to: int, sender: Person, body: str, days: int) -> int:
        """Answer in the thread, that many days (at least 1) after what is answered."""
        before = self._written[to]
        day = (before.date - FIRST_DAY).days + days
        subject = f"Re: {before.subject.removeprefix('Re: ')}"
        return self._post(sender, subject, body, self._minute(day), before.thread)

    def follow(self, to: int, sender: Person, subject: str, body: str, days: int) -> int:
        """A new thread, that many days after another mail."""
        day = (self._written[to].date - FIRST_DAY).days + days
        return self.mail(sender, subject, body, day)

    def chatter(self, writers: list[Person], count: int) -> None:
        """Mail that nobody asks about, some of it answered; the writers come first."""
        texts = self._rng.sample(words.CHATTER, count)
        writers = writers + [self.person() for _ in range(3)]
        for place, (subject, text) in enumerate(texts):
            sender = writers[place % len(writers)]
            named = self._rng.choice([writer for writer in writers if writer != sender])
            body = text.format(name=named.name.split()[0], place=self._rng.choice(words.PLACES))
            first = self.mail(sender, subject, body, self._rng.randrange(DAYS - 5))
            if self._rng.random() < 0.3:
                self.reply(first, named, "Good to know, thank you.", 1)

    def deliver(self) -> tuple[tuple[Mail, ...], dict[int, str]]:
        """The mail in order of its dates, and the ids: "m1" is the oldest."""
        order = sorted(range(len(self._written)), key=lambda key: self._written[key].date)
        ids = {key: f"m{place}" for place, key in enumerate(order, start=1)}
        return tuple(self._mail(key, ids) for key in order), ids

    def _mail(self, key: int, ids: dict[int, str]) -> Mail:
        written = self._written[key]
        return Mail(
            id=ids[key],
            thread=ids[written.thread],
            date=f"{written.date:%Y-%m-%d %H:%M}",
            sender=written.sender.name,
            address=written.sender.address,
            subject=written.subject,
            body=written.body,
        )

    def _post(self, sender: Person, subject: str, body: str, date: datetime, thread: int) -> int:
        self._written.append(_Written(sender, subject, body, date, thread))
        return len(self._written) - 1

    def _minute(self, day: int) -> datetime:
        """A minute of that day's office hours that no other mail has."""
        while True:
            minute = FIRST_DAY + timedelta(days=day, minutes=8 * 60 + self._rng.randrange(600))
            if minute not in self._minutes:
                self._minutes.add(minute)
                return minute


def first_day_of(month: int) -> int:
    """The day, as `mail` counts them, on which a month of 2026 begins; 1 is January."""
    return (datetime(2026, month, 1) - FIRST_DAY).days  # noqa: DTZ001 - as above
