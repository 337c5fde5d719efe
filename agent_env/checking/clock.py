"""Another clock for one of two processes: what a task reads from a clock then differs.

Without it two processes side by side read the same second, and the same day.
"""

from __future__ import annotations

import time
from typing import SupportsIndex

ZONE = "<check>-23:37:21"
"""As TZ (POSIX): what is asked for local time is told another day, hour, minute and second."""

AHEAD_S = 400 * 86_400 + 3 * 3_600 + 7 * 60 + 21


def run_ahead() -> None:
    """Let `time.time()`, `time_ns()` and `gmtime()` of this process run ahead by `AHEAD_S`.

    `datetime.now(UTC)` doesn't: its type is C's own.
    """
    read, read_ns, gmtime = time.time, time.time_ns, time.gmtime

    def ahead(seconds: float | SupportsIndex | None = None) -> time.struct_time:
        return gmtime(time.time() if seconds is None else seconds)

    time.time = lambda: read() + AHEAD_S
    time.time_ns = lambda: read_ns() + AHEAD_S * 1_000_000_000
    time.gmtime = ahead
