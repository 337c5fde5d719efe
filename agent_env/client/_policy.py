"""How patient a session is, in one object. All in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent_env.errors import AtCapacity, SessionError

CONNECT_TIMEOUT_S = 10.0
PROBE_S = 2.0
"""What a try may take once a deadline has passed: enough for a healthy server to answer."""
LONGEST_QUEUE_S = 60.0
"""The server lets nobody queue for room for longer."""

_MARGIN = 0.1
_LONGEST_MARGIN_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What each kind of wait may take, and all of them together."""

    patience: float
    """For room on a full server."""
    reset_timeout: float
    """For the reply to a reset."""
    waits_for_server: bool
    """Wait for a server that refuses connections, instead of giving up at once."""
    step_timeout: float = 60.0
    """For the reply to a step."""
    budget: float | None = None
    """For one call, with its connecting, waiting and sending again; None: the sum of the above."""

    def __post_init__(self) -> None:
        for name in ("patience", "reset_timeout", "step_timeout", "budget"):
            value = getattr(self, name)
            least = 0 if name == "patience" else 1e-3
            if value is not None and not least <= value < math.inf:
                raise ValueError(f"{name} is {value} s; it must be finite, {least:g} or more")

    def wait_s(self, error: SessionError) -> float:
        """How long to go on trying after that error, counted from the first of its kind."""
        if isinstance(error, AtCapacity):
            return self.patience
        return max(self.patience, self.reset_timeout) if self.waits_for_server else 0.0

    def call_s(self, reply_s: float) -> float:
        """What a call may take in all whose reply may take `reply_s`."""
        if self.budget is not None:
            return self.budget
        return max(self.patience, self.reset_timeout) + self.patience + reply_s


def server_deadline(reply_s: float) -> float:
    """What the server is told to take at most, so that its own word of it still arrives."""
    return reply_s - min(_LONGEST_MARGIN_S, _MARGIN * reply_s)
