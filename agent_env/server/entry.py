"""What a socket asks for in its query, read strictly."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass

from agent_env.server.protocol import SESSION_ID, FrameError
from agent_env.server.slots import MAX_WAIT_S

_KNOWN = ("session_id", "open", "wait_s")


@dataclass(frozen=True, slots=True)
class Entry:
    """`?session_id=…&open=1&wait_s=…`."""

    session_id: str | None = None
    open: bool = False
    """Whether the session may be a new one."""
    wait_s: float = 0.0
    """How long to wait for room, in seconds."""


def read_entry(query: dict[str, list[str]]) -> Entry:
    """The query as parsed from the address. Raises FrameError that names the argument."""
    for name in query:
        if name not in _KNOWN:
            near = difflib.get_close_matches(name[:64], _KNOWN, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_KNOWN)}"
            raise _refusal(f"unknown argument {name!r} of the address; {hint}")
    one = {name: values[-1] for name, values in query.items()}
    session_id = one.get("session_id")
    if session_id is not None and not re.fullmatch(SESSION_ID, session_id):
        message = f"no session is named {session_id!r}: names are 8 to 64 of A–Z a–z 0–9 _ -"
        raise FrameError("SESSION_ERROR", message, reason="SESSION_LOST")
    if one.get("open", "1") not in ("0", "1"):
        raise _refusal(f"open={one['open']!r} is neither 0 nor 1")
    return Entry(session_id, one.get("open") == "1", _seconds(one.get("wait_s", "0")))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MAX_WAIT_S:
        raise _refusal(f"wait_s={text!r} isn't a number of seconds from 0 to {MAX_WAIT_S:.0f}")
    return seconds


def _refusal(message: str) -> FrameError:
    return FrameError("VALIDATION_ERROR", message, errors=[])
