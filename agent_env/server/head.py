"""Where a connection wants to go, from the first line that it sent. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs

from agent_env.server.protocol import SESSION_ID

MAX_HEAD = 8192


@dataclass(frozen=True, slots=True)
class Target:
    """`session` and `rpc` are for a worker, `http` is answered by the front."""

    kind: Literal["session", "rpc", "http"]
    session_id: str | None = None


def read_target(head: bytes) -> Target | None:
    """None: the first line isn't all there yet."""
    first, end, _ = head.partition(b"\r\n")
    if not end and len(head) < MAX_HEAD:
        return None
    words = first.decode("latin-1").split(" ")
    path, _, query = (words[1] if len(words) > 1 else "").partition("?")
    if "://" in path:  # as a proxy is asked
        path = "/" + path.partition("://")[2].partition("/")[2]
    if path == "/ws":
        found = parse_qs(query).get("session_id", [""])[-1]
        return Target("session", found if re.fullmatch(SESSION_ID, found) else None)
    return Target("rpc" if path == "/mcp" else "http")
