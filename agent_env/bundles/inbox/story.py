"""A task's content: the mail that is there, what two turns ask for, and what counts as done."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from agent_env.bundles.inbox.goals import Fact, Goal
from agent_env.bundles.inbox.mailbox import Mailbox, Message, Person

CHOICE, OTHER = "{choice}", "{other}"
"""Stand in texts and facts for the option that the first turn took, and for the one it left."""


class Mail(BaseModel):
    """A received message as it is frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    thread: str
    date: str
    sender: str
    address: str
    subject: str
    body: str

    def message(self) -> Message:
        fields = self.model_dump(exclude={"sender", "address"})
        return Message(**fields, sender=Person(name=self.sender, address=self.address))


class Story(BaseModel):
    """Two turns over one mailbox."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    prompt: str
    mails: tuple[Mail, ...]
    first: tuple[Goal, ...]
    answer: Fact
    second: tuple[Goal, ...]
    request: str
    """What the second message asks for when the first turn went well."""
    options: tuple[str, ...] = ()
    """Where the first turn is free to choose: from these two."""
    query: str
    reads: tuple[str, ...]
    """What an expert searches for and reads."""
    rivals: dict[str, str] = {}
    """Messages and their near-duplicates: what a worse expert takes them for."""

    def mailbox(self) -> Mailbox:
        return Mailbox.of(mail.message() for mail in self.mails)

    def chosen(self, choice: str) -> Story:
        """The story after that option was taken; itself where there is nothing to choose."""
        if not self.options:
            return self
        other = next(option for option in self.options if option != choice)
        filled = self.model_dump_json().replace(CHOICE, choice).replace(OTHER, other)
        return Story.model_validate_json(filled)
