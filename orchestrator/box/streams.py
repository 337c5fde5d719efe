"""How much a box sends to S3 at once. With one stream nothing runs beside the caller."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
STREAMS = 4


def streams(count: int) -> Executor:
    """Does so many things at once; when that is one, it's done on the spot."""
    return _OnTheSpot() if count == 1 else ThreadPoolExecutor(count)


class _OnTheSpot(Executor):
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
