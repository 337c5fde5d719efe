"""What an expert would do in both turns, spoiled on purpose by as much noise as is wanted."""

from __future__ import annotations

import random
from typing import Any

from agent_env.bundle import Calls
from agent_env.bundles.inbox.goals import Fact, Goal
from agent_env.bundles.inbox.story import Story
from agent_env.types import END_TURN


def expert_calls(story: Story, noise: float, rng: random.Random) -> Calls:
    """The calls of both turns, `end_turn` included.

    With probability `noise` a message is taken for its near-duplicate, and a fact for another's.
    """
    plain = story.chosen(story.options[0]) if story.options else story
    return _Expert(plain, noise, rng).calls()


class _Expert:
    def __init__(self, story: Story, noise: float, rng: random.Random) -> None:
        self._story, self._noise, self._rng = story, noise, rng
        self._drafts: dict[str, str] = {}

    def calls(self) -> Calls:
        story = self._story
        calls: Calls = [("search", {"query": story.query})]
        calls += [("read", {"message_id": self._message(id)}) for id in story.reads]
        for goal in story.first:
            calls += self._done(goal)
        calls.append((END_TURN, {"response": self._sentence(story.answer)}))
        for goal in story.second:
            calls += self._done(goal)
        return [*calls, (END_TURN, {"response": "Done."})]

    def _done(self, goal: Goal) -> Calls:
        if goal.kind == "archive":
            return [("archive", {"message_id": self._message(goal.message)})]
        if goal.kind == "label":
            return [("label", {"message_id": self._message(goal.message), "label": goal.label})]
        written = [] if goal.to in self._drafts else [self._written(goal)]
        sent = [("send", {"draft_id": self._drafts[goal.to]})] if goal.kind == "send" else []
        return [*written, *sent]

    def _written(self, goal: Goal) -> tuple[str, dict[str, Any]]:
        self._drafts[goal.to] = f"d{len(self._drafts) + 1}"
        fact = goal.fact or self._story.answer
        subject = fact.about.removeprefix("the ").capitalize()
        return "draft", {"to": goal.described, "subject": subject, "body": self._sentence(fact)}

    def _message(self, id: str) -> str:
        return self._story.rivals.get(id, id) if self._spoiled() else id

    def _sentence(self, fact: Fact) -> str:
        told = fact.says
        if fact.never and self._spoiled():
            told = tuple(self._rng.sample(fact.never, min(len(told), len(fact.never))))
        words = " at ".join(word.partition("|")[0] for word in told)
        return f"{fact.about.capitalize()}: {words}."

    def _spoiled(self) -> bool:
        return self._rng.random() < self._noise
