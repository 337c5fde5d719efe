"""Threads for steps that may take long: few while steps are short, more when some hang.

When for 50 ms no step was begun while some wait, they get threads of their own, so that two
hanging tasks stall no third; a thread over the core's number goes when it finds nothing to do.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

MAX_THREADS = 64
STALL_S = 0.05
LINGER_S = 2.0

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Pool:
    """Runs blocking work for one event loop."""

    def __init__(self, core: int = os.cpu_count() or 1) -> None:
        self._core = core
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._begun = 0
        self._looking = False

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run it in a thread; the future is of the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((work, future))
        if self._idle < self._jobs.qsize() and self._threads < self._core:
            self._grow(1)
        elif self._threads < MAX_THREADS and not self._looking:
            self._looking = True
            loop.call_later(STALL_S, self._look, loop, self._begun)
        return future

    def close(self) -> None:
        """Let idle threads go; one that hangs in a task holds nothing up."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _look(self, loop: asyncio.AbstractEventLoop, begun: int) -> None:
        waiting = self._jobs.qsize() - self._idle
        if waiting > 0 and begun == self._begun:
            self._grow(min(waiting, MAX_THREADS - self._threads))
        self._looking = waiting > 0
        if self._looking:
            loop.call_later(STALL_S, self._look, loop, self._begun)

    def _grow(self, count: int) -> None:
        for _ in range(count):
            with self._lock:
                self._threads += 1
            stays = self._threads <= self._core
            # A daemon: the interpreter's end doesn't wait for a task that hangs.
            threading.Thread(target=self._work, args=(stays,), name="episode", daemon=True).start()

    def _work(self, stays: bool) -> None:
        while (job := self._next(stays)) is not None:
            _run(*job)
        with self._lock:
            self._threads -= 1

    def _next(self, stays: bool) -> _Job | None:
        with self._lock:
            self._idle += 1
        try:
            return self._jobs.get(timeout=None if stays else LINGER_S)
        except queue.Empty:
            return None
        finally:
            with self._lock:
                self._idle -= 1
                self._begun += 1


def _run(work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
    loop = future.get_loop()
    try:
        result = work()
    except BaseException as error:
        failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, future, None, failure)
    else:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, future, result, None)


def _settle(future: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is None:
        future.set_result(result)
    elif isinstance(failure, Exception):
        future.set_exception(failure)
    else:  # a task that calls sys.exit ends its own step, not the server
        future.set_exception(RuntimeError(f"the task raised {failure!r}"))
