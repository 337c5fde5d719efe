"""What a conversation asks of whoever drives it: five commands, and nothing else touches a socket.

A conversation is a generator that yields commands and is sent what came of them, so that one
policy serves a blocking session, an asynchronous one, and a test without socket or clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Open:
    """Connect; fails with ServerDown, Unauthorized or ProtocolError, and with Cut where somebody
    was there and the connection broke before they had answered."""

    query: dict[str, str]
    timeout_s: float


@dataclass(frozen=True)
class Ask:
    """Send a frame and give back the next one; fails with Cut or TimeoutError."""

    text: str
    timeout_s: float


@dataclass(frozen=True)
class Pause:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True)
class HangUp:
    """Leave the connection, if there is one; with a goodbye the session ends too."""

    goodbye: bool


Command = Open | Ask | Pause | HangUp
Talk = Generator[Command, Any, T]


class Cut(Exception):
    """The connection broke."""

    def __init__(self, code: int | None, why: str) -> None:
        super().__init__(why)
        self.code = code
        """The close code of whoever closed it; None where nobody said goodbye."""


@dataclass(frozen=True)
class Ended(Generic[T]):
    """The conversation is over, and this is what it came to."""

    result: T


def resumed(resume: Callable[[Any], Command], came: object) -> Command | Ended[Any]:
    """Tell a talk (by its `send` or `throw`) what came of a command; gives the next one."""
    try:
        return resume(came)
    except StopIteration as end:
        return Ended(end.value)
