"""SIGTERM as an exit that can be answered, as Ctrl-C is: by saying what goes on without us."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TERMINATED = 128 + signal.SIGTERM
"""The exit status of a command that was told to end: 143."""


@contextmanager
def sigterm_exits() -> Iterator[None]:
    """Within it, SIGTERM raises SystemExit with 143; only the main thread can arrange that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
