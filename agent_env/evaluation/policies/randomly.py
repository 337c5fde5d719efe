"""A policy that does anything: what lazy rewards and disturbed servers are tested with.

Each move is drawn from a generator seeded with the task, the attempt and every observation so far,
so that the same observations lead to the same moves, in any process and any order.
"""

from __future__ import annotations

import random
from typing import Any

from agent_env.evaluation.history import Call, History, Message, Move
from agent_env.evaluation.policies.arguments import Guess
from agent_env.types import END_TURN, ToolSpec

LONGEST = 12
"""Calls after which it only ends turns."""

_END = 0.1
_FORGETS = 0.05
_RECENT = 6


class Randomly:
    """Any tool with plausible arguments; now and then it forgets one, or ends the turn."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, history: History) -> Move:
        rng = random.Random(history.digest(self._seed, history.calls))  # noqa: S311
        guess = Guess(rng, _words(history.messages))
        tools = [tool for tool in history.tools if tool.name != END_TURN]
        ends = history.calls >= LONGEST or rng.random() < _END
        if not tools or (ends and len(tools) < len(history.tools)):
            return Move(calls=(Call(name=END_TURN, arguments={"response": guess.text()}),))
        return Move(calls=(_call(rng.choice(tools), guess, rng),))


def _call(tool: ToolSpec, guess: Guess, rng: random.Random) -> Call:
    arguments: dict[str, Any] = guess.value(tool.input_schema)
    if arguments and rng.random() < _FORGETS:
        arguments.pop(rng.choice(sorted(arguments)))
    return Call(name=tool.name, arguments=arguments)


def _words(messages: list[Message]) -> list[str]:
    """The words of the latest messages: names and ids that the tools may know."""
    texts = (str(message["content"]) for message in messages[-_RECENT:])
    words = (word.strip(".,:;!?()[]<>\"'|") for text in texts for word in text.split())
    return list(dict.fromkeys(word for word in words if word))
