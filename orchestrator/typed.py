"""Commands in messages, as they must be typed: the local default finds no run of AWS.

A command that is copied from a message must reach the cloud that the message is about: `gpurun
sweep` typed as it stands would look through the local cloud, and find nothing that bills.
"""

from __future__ import annotations

import re
from contextvars import ContextVar

chosen: ContextVar[str] = ContextVar("chosen", default="local")
"""The cloud that this process was told to work on."""
_VERBS = "bill|budget|down|logs|pull|report|rescue|resume|ssh|status|sweep|up"
_COMMAND = re.compile(rf"\bgpurun ({_VERBS})\b(?![^\n;,]*--cloud)")


def typed(words: str) -> str:
    """The same words, with the cloud in each command that would otherwise ask the local one."""
    cloud = chosen.get()
    return words if cloud == "local" else _COMMAND.sub(rf"gpurun \1 --cloud {cloud}", words)
