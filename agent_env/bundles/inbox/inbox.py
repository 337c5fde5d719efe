"""The splits of inbox, what they open, what their scores are worth, and the hash."""

import hashlib
import random
from collections.abc import Sequence
from functools import cache

from agent_env.bundle import Bundle, Calls
from agent_env.bundles.inbox.demonstrations import expert_calls
from agent_env.bundles.inbox.frozen import SPLITS, lines, stories
from agent_env.bundles.inbox.story import Story
from agent_env.bundles.inbox.tasks import InboxTask
from agent_env.bundles.inbox.vocabulary import OWNER
from agent_env.task import Task
from agent_env.types import TaskData

SYSTEM_PROMPT = (
    f"You look after the mailbox of {OWNER}. Use the tools to do what is asked and change nothing "
    "else. When you are done, call end_turn with just your answer; another request may follow."
)
WEIGHTS = {"first": 0.25, "answer": 0.25, "second": 0.5}
"""What the reward is made of, before it is multiplied by `careful`."""


class Inbox(Bundle):
    """Two turns over a mailbox; nothing done is worth 0."""

    name = "inbox"
    splits = tuple(SPLITS)

    def tasks(self, split: str) -> Sequence[TaskData]:
        """The frozen stories of a split. Raises KeyError for a split that doesn't exist."""
        if split not in self.splits:
            raise KeyError(split)
        return _tasks(split)

    def open(self, data: TaskData) -> Task:
        return InboxTask(data)

    def expert(self, data: TaskData, *, noise: float, rng: random.Random) -> Calls:
        """The calls of both turns. Finds the story by split and index."""
        story = Story.model_validate(stories(data.split)[data.index])
        return expert_calls(story, noise, rng)

    def reward(self, scores: dict[str, float]) -> float | None:
        """careful × (first / 4 + answer / 4 + second / 2)."""
        worth = sum(weight * scores[name] for name, weight in WEIGHTS.items())
        return round(scores["careful"] * worth, 6)

    @property
    def content_hash(self) -> str:
        """SHA-256 of stories, system prompt and tools: equal hashes, comparable results."""
        digest = hashlib.sha256(SYSTEM_PROMPT.encode())
        for split in self.splits:
            digest.update(b"\n".join((split.encode(), *lines(split))))
        for spec in self.tools("train"):
            digest.update(spec.model_dump_json().encode())
        return digest.hexdigest()


@cache
def _tasks(split: str) -> tuple[TaskData, ...]:
    return tuple(
        TaskData(
            id=f"inbox/{split}/{index}",
            name=f"{story['kind']} {index}",
            split=split,
            index=index,
            prompt=story["prompt"],
            system_prompt=SYSTEM_PROMPT,
            data=story,
        )
        for index, story in enumerate(stories(split))
    )
