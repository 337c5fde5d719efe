"""The task: tools on a mailbox, two turns, four scores.

The scores are read from the mailbox and the first reply, by rules: no model judges anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from agent_env.bundles.inbox.dialogue import choice_in, second_message
from agent_env.bundles.inbox.goals import Goal, strays
from agent_env.bundles.inbox.mailbox import Mailbox, MailboxError, Message
from agent_env.bundles.inbox.story import Story
from agent_env.errors import ToolError
from agent_env.task import Task, tool
from agent_env.types import TaskData

T = TypeVar("T")


class InboxTask(Task):
    """Two requests of the mailbox's owner."""

    quick = True

    def __init__(self, data: TaskData) -> None:
        super().__init__(data)
        story = Story.model_validate(data.data)
        self._messages = tuple(story.mailbox().messages.values())
        # A server holds thousands of episodes: the mail is kept once.
        self._asked = story.model_copy(update={"mails": ()})
        self._start()

    def reset(self, seed: int | None) -> str | None:  # noqa: ARG002
        """Everything as it was; stories are frozen, so the seed changes nothing."""
        self._start()
        return None

    def _start(self) -> None:
        self._story, self._box = self._asked, Mailbox.of(self._messages)
        self._met: list[bool] | None = None
        self._answered, self.done = False, False

    @tool
    def search(self, query: str = "") -> str:
        """Search the mailbox; the best matches come first, at most eight.

        Args:
            query: words from the sender, subject or text; leave it out for the newest mail
        """
        found = self._box.search(query)
        return "\n".join(self._line(message) for message in found) or "Nothing matches."

    @tool
    def read(self, message_id: str) -> str:
        """Read a message.

        Args:
            message_id: as search shows it, such as m7
        """
        message = self._try(lambda: self._box.read(message_id))
        return f"From: {message.sender}\n{self._line(message)}\n{message.body}"

    @tool
    def label(self, message_id: str, label: str, remove: bool = False) -> str:
        """Put a label on a message, or take it off.

        Args:
            message_id: as search shows it, such as m7
            label: the label's name
            remove: true takes the label off
        """
        self._try(lambda: self._box.label(message_id, label, remove=remove))
        return self._line(self._box.read(message_id))

    @tool
    def archive(self, message_id: str) -> str:
        """Move a message out of the inbox.

        Args:
            message_id: as search shows it, such as m7
        """
        self._try(lambda: self._box.archive(message_id))
        return self._line(self._box.read(message_id))

    @tool
    def draft(self, to: str, subject: str, body: str) -> str:
        """Write a mail without sending it; it replaces your unsent draft to the same person.

        Args:
            to: name or address of somebody in the mailbox
            subject: the subject
            body: the text
        """
        letter = self._try(lambda: self._box.draft(to, subject, body))
        return f"Draft {letter.id} to {letter.to} is saved."

    @tool
    def send(self, draft_id: str) -> str:
        """Send a draft.

        Args:
            draft_id: as draft gave it, such as d1
        """
        letter = self._try(lambda: self._box.send(draft_id))
        return f"{letter.id} was sent to {letter.to}."

    def end_turn(self, response: str) -> str | None:
        if self._met is not None:
            self.done = True
            return None
        self._story = self._asked.chosen(choice_in(self._asked, self._box))
        self._met = [goal.met(self._box, over=False) for goal in self._story.first]
        self._answered = self._story.answer.told(response)
        return second_message(self._story, self._box, response)

    def score(self) -> dict[str, float]:
        """Each in [0, 1].

        first: the share of the first request that was done when its turn ended.
        answer: whether the first reply says what was asked, and nothing that it isn't.
        second: the share of what the second message asks for, corrections included, at the end.
        careful: 1 / (1 + changes that nobody asked for); 0 where nothing asked for was done.
        """
        met = self._met or [False] * len(self._story.first)
        due = [goal for goal, done in zip(self._story.first, met, strict=True) if not done]
        after = [*due, *self._story.second]
        later = [goal.met(self._box) for goal in after] if self._met is not None else [False]
        undone = sum(done and not goal.met(self._box) for goal, done in self._first(met))
        changes = strays(self._box, [*self._story.first, *self._story.second]) + undone
        useful = any(met) or any(later)
        return {
            "first": sum(met) / len(met),
            "answer": float(self._answered),
            "second": sum(later) / len(later),
            "careful": 1 / (1 + changes) if useful else 0.0,
        }

    def _first(self, met: list[bool]) -> list[tuple[Goal, bool]]:
        return list(zip(self._story.first, met, strict=True))

    def _line(self, message: Message) -> str:
        labels = "".join(f" [{name}]" for name in sorted(self._box.labels[message.id]))
        place = " (archived)" if message.id in self._box.archived else ""
        head = f"{message.id} | {message.date[:10]} | {message.sender.name} | {message.subject}"
        return f"{head}{labels}{place}"

    @staticmethod
    def _try(act: Callable[[], T]) -> T:
        try:
            return act()
        except MailboxError as error:
            raise ToolError(str(error)) from error
