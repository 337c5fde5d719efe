"""What was asked for, as data, and whether a mailbox fulfils it. Nothing here knows of turns.

A fact counts as said only where none of its near-duplicates is said too: who quotes everything
has answered nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from agent_env.bundles.inbox.mailbox import Letter, Mailbox


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fact(_Frozen):
    """What a text must say (all of `says`) and must not (any of `never`).

    Whole words, in any case; "3|three" is either of the two.
    """

    about: str
    """What it is, as the user would name it: "the amount"."""
    says: tuple[str, ...]
    never: tuple[str, ...] = ()

    def told(self, text: str) -> bool:
        return all(_says(text, word) for word in self.says) and not any(
            _says(text, word) for word in self.never
        )


class Goal(_Frozen):
    """One change of the mailbox.

    label: `message` has `label`. archive: `message` is archived. draft: an unsent mail to `to`
    states `fact`. send: a sent one does.
    """

    kind: Literal["label", "archive", "draft", "send"]
    described: str
    """The message or the person, as the user would name it."""
    message: str = ""
    label: str = ""
    to: str = ""
    fact: Fact | None = None

    def met(self, box: Mailbox, *, over: bool = True) -> bool:
        """`over`: at the end of everything, when a draft may have been sent."""
        if self.kind == "label":
            return self.label in box.labels[self.message]
        if self.kind == "archive":
            return self.message in box.archived
        letters = [letter for letter in box.letters.values() if self.is_said_by(letter)]
        if self.kind == "send":
            return any(letter.sent for letter in letters)
        return any(over or not letter.sent for letter in letters)

    def is_said_by(self, letter: Letter) -> bool:
        text = f"{letter.subject}\n{letter.body}"
        return letter.to == self.to and (self.fact is None or self.fact.told(text))


def strays(box: Mailbox, goals: Sequence[Goal]) -> int:
    """Changes of the mailbox that none of the goals asks for.

    A label set or taken off, a message archived, a mail sent that says the wrong thing or goes to
    the wrong person, a draft to somebody who is to get none.
    """
    labels = {(goal.message, goal.label) for goal in goals if goal.kind == "label"}
    archived = {goal.message for goal in goals if goal.kind == "archive"}
    letters = [goal for goal in goals if goal.kind in ("draft", "send")]
    return (
        sum((id, name) not in labels for id, name in _relabelled(box))
        + len(box.archived - archived)
        + sum(not _asked_for(letter, letters) for letter in box.letters.values())
    )


def _asked_for(letter: Letter, goals: Sequence[Goal]) -> bool:
    if not letter.sent:
        return any(goal.to == letter.to for goal in goals)
    return any(goal.is_said_by(letter) for goal in goals)


def _relabelled(box: Mailbox) -> list[tuple[str, str]]:
    return [
        (id, name)
        for id, message in box.messages.items()
        for name in box.labels[id] ^ set(message.labels)
    ]


def _says(text: str, word: str) -> bool:
    """Whole words; a number isn't found inside a longer one."""
    either = "|".join(re.escape(part) for part in word.split("|"))
    return bool(re.search(rf"(?<![\w-])(?<!\d[.,])(?:{either})(?![\w-])", text, re.I))
