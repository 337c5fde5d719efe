"""Which splits' tasks are quick enough for the event loop, by their word and by the clock."""

from __future__ import annotations

import logging

from agent_env.server.served import ServedSplit

_log = logging.getLogger(__name__)

SLOW_S = 0.010
STALLED_S = 0.100
"""What breaks the word of a `quick` task, in seconds: three slow steps in a row, since on a busy
machine a process may have to wait for its turn, or one that stalls everybody."""
SLOW_IN_A_ROW = 3


class Pace:
    """What is known of each split's tasks."""

    def __init__(self) -> None:
        self._quick: dict[str, bool] = {}
        self._slow: dict[str, int] = {}

    def is_quick(self, split: ServedSplit) -> bool:
        """Whether its steps may run on the event loop; not before one of its tasks was opened."""
        return self._quick.get(split.name, False)

    def opened(self, split: ServedSplit, quick: bool) -> None:
        """A task of it was opened and says whether it is quick."""
        self._quick.setdefault(split.name, quick)

    def took(self, split: ServedSplit, seconds: float) -> None:
        """A reset or step ran on the event loop for that long."""
        if seconds <= SLOW_S:
            if self._slow:
                self._slow.pop(split.name, None)
            return
        self._slow[split.name] = self._slow.get(split.name, 0) + 1
        if seconds > STALLED_S or self._slow[split.name] >= SLOW_IN_A_ROW:
            self._quick[split.name] = False
            _log.warning(
                "a task of %s says quick, but took %.0f ms: its steps run in threads from now on",
                split.name,
                seconds * 1000,
            )
