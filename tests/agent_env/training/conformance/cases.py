"""What a model says in each case, and what every trainer must make of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Call = tuple[str, dict[str, Any]]

ASSISTANT = "<|im_start|>assistant\n"
END = "<|im_end|>"


def call(name: str, **arguments: Any) -> str:
    """A tool call as Qwen3 writes it."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One rollout: the model's messages in turn, and what becomes of them."""

    name: str
    replies: tuple[str, ...]
    calls: tuple[Call, ...]
    """Those that the environment carried out."""
    reward: float | None
    split: str = "one"
    spoken: int | None = None
    """How many messages there are when the episode is over; all of them by default."""
    same_text: bool = True
    """False where trainers differ in what they still ask of the model; the rest is the same."""

    @property
    def scores(self) -> dict[str, float]:
        """By id; none for a rollout without a reward."""
        return {} if self.reward is None else {"near": self.reward}

    @property
    def own_text(self) -> str:
        """What the loss may look at: the model's own messages until the episode was over."""
        return "".join(reply + END for reply in self.replies[: self.spoken])


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a trainer made of a case; `own_text` is what its mask lets the loss look at."""

    reward: float | None
    scores: dict[str, float]
    own_text: str
    counts: bool
    """Whether any token of it moves the weights."""


CASES: tuple[Case, ...] = (
    Case(
        name="one call and an answer",
        replies=(call("add", n=4), "Done."),
        calls=(("add", {"n": 4}),),
        reward=0.4,
    ),
    Case(
        name="two calls in one message",
        replies=(call("add", n=3) + "\n" + call("add", n=4), "Done."),
        calls=(("add", {"n": 3}), ("add", {"n": 4})),
        reward=0.7,
    ),
    Case(
        name="a call that the tool refuses",
        replies=(call("add", n=500), call("add", n=6), "Done."),
        calls=(("add", {"n": 500}), ("add", {"n": 6})),
        reward=0.6,
    ),
    Case(
        name="a tool that there is not",
        replies=(call("subtract", n=1), call("add", n=5), "Done."),
        calls=(("add", {"n": 5}),),
        reward=0.5,
    ),
    Case(
        name="arguments that don't fit",
        replies=(call("add", n="many"), call("add", n=8), "Done."),
        calls=(("add", {"n": 8}),),
        reward=0.8,
    ),
    Case(
        name="an episode that a tool ends",
        replies=(call("add", n=10), call("commit"), ""),
        calls=(("add", {"n": 10}), ("commit", {})),
        reward=1.0,
        spoken=2,
    ),
    Case(name="an answer and no call", replies=("I can't add.",), calls=(), reward=0.0),
    Case(
        name="an environment that breaks",
        replies=(call("crash"), "Sorry."),
        calls=(),
        reward=None,
        spoken=1,
    ),
    Case(
        name="two turns, each ended by the tool",
        split="two",
        replies=(
            call("add", n=4),
            call("end_turn", response="4"),
            call("add", n=6),
            call("end_turn", response="10"),
            "",
        ),
        calls=(("add", {"n": 4}), ("add", {"n": 6})),
        reward=1.0,
        spoken=4,
    ),
    Case(
        name="two turns, answered in plain text",
        split="two",
        replies=("Four.", "Ten."),
        calls=(),
        reward=0.0,
        same_text=False,  # TRL hands no plain text on, so there its rollout is over after one
    ),
)


@dataclass
class Script:
    """The model: says each case's next message, whatever the trainer's order."""

    cases: tuple[Case, ...] = CASES
    before: Callable[[int, int], None] = field(default=lambda _case, _turn: None)
    """Called before each message with the case's number and the message's."""

    def reply(self, prompt: str) -> str:
        """The next message for that text, which must name its case."""
        found = re.search(r"Case (\d+):", prompt)
        assert found, f"no case in the prompt: {prompt}"
        number, turn = int(found[1]), prompt.count(ASSISTANT) - 1
        self.before(number, turn)
        replies = self.cases[number].replies
        return (replies[turn] if turn < len(replies) else "") + END


def rows(cases: tuple[Case, ...]) -> list[dict[str, Any]]:
    """The split and index that each case is reset with."""
    return [{"split": case.split, "index": CASES.index(case)} for case in cases]
