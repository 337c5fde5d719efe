"""Which splits' tasks are quick enough for the event loop, by their word and by the clock."""

from __future__ import annotations

import logging

from agent_env.server.served import ServedSplit

_log = logging.getLogger(__name__)

LIMIT_S = 0.010
"""A step over this breaks the word of a `quick` task, in seconds."""


class Pace:
    """What is known of each split's tasks."""

    def __init__(self) -> None:
        self._quick: dict[str, bool] = {}

    def is_quick(self, split: ServedSplit) -> bool:
        """Whether its steps may run on the event loop; not before one of its tasks was opened."""
        return self._quick.get(split.name, False)

    def opened(self, split: ServedSplit, quick: bool) -> None:
        """A task of it was opened and says whether it is quick."""
        self._quick.setdefault(split.name, quick)

    def took(self, split: ServedSplit, seconds: float) -> None:
        """A step ran on the event loop for that long."""
        if seconds > LIMIT_S and self._quick.get(split.name):
            self._quick[split.name] = False
            _log.warning(
                "a task of %s says quick, but took %.0f ms: its steps run in threads from now on",
                split.name,
                seconds * 1000,
            )
