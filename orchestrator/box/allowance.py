"""What a box may still put into S3: its share of what the plan's price answers for.

Money comes before results: what would go over isn't uploaded. A little is held back, so that
logs and metrics still go when the rest no longer does, and manifests when those don't.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.box.store import Store

USED_UP = "results allowance used up: raise results_gb"
# In hundredths of the whole: how far each may go.
REST, OWN, MANIFESTS = 96, 99, 100


class Refused(Exception):
    """There is no allowance for it; the message names it."""


class Allowance:
    """Shared by a box's jobs and their threads; None: no limit.

    What the bucket holds of `jobs` counts from the start: so an agent that was started again, and
    a box that took another's place, go on counting.
    """

    def __init__(
        self,
        upload_bytes: int | None = None,
        upload_objects: int | None = None,
        jobs: tuple[str, ...] = (),
    ) -> None:
        self._bytes, self._objects = upload_bytes, upload_objects
        self._jobs, self._recalled = jobs, False
        self._used_bytes = self._used_objects = 0
        self._turn, self._recalling = threading.Condition(), threading.Lock()
        self._asking: dict[int, int] = {}
        self._asked = 0

    @property
    def limited(self) -> bool:
        return self._bytes is not None or self._objects is not None

    def recall(self, store: Store) -> None:
        """Count what earlier agents and boxes put there, once. Raises StoreDown."""
        with self._recalling:
            if self._recalled or not self.limited:
                return
            for job in self._jobs:
                for kind in ("blobs", "manifests"):
                    for _, size in store.keys(f"jobs/{job}/{kind}/"):
                        self.spend(size, store.requests_for(size))
            self._recalled = True

    def ask(self, size: int) -> int:
        """Queue for at most so many bytes: what asked earlier comes first, should it get tight."""
        with self._turn:
            self._asked += 1
            self._asking[self._asked] = size
            return self._asked

    def leave(self, ticket: int) -> None:
        """Whatever became of it, nobody has to wait for it any more."""
        with self._turn:
            self._asking.pop(ticket, None)
            self._turn.notify_all()

    def take(self, size: int, objects: int, upto: int = REST, ticket: int = 0) -> bool:
        """Count it if there is room for it all. Waits while that is up to who asked before."""
        with self._turn:
            self._turn.wait_for(lambda: self._is_clear(size, upto, ticket))
            self._asking.pop(ticket, None)
            self._turn.notify_all()
            fits = self._fits(self._used_bytes + size, self._bytes, upto) and self._fits(
                self._used_objects + objects, self._objects, upto
            )
            if fits:
                self._used_bytes += size
                self._used_objects += objects
            return fits

    def _is_clear(self, size: int, upto: int, ticket: int) -> bool:
        before = sum(asked for other, asked in self._asking.items() if other < ticket)
        used = self._used_bytes + size
        return before == 0 or self._fits(used + before, self._bytes, upto)

    def spend(self, size: int, objects: int) -> None:
        """Count it, room or no room."""
        with self._turn:
            self._used_bytes += size
            self._used_objects += objects

    def give_back(self, size: int, objects: int) -> None:
        """It was counted and isn't there after all."""
        self.spend(-size, -objects)

    def is_beyond(self, size: int) -> bool:
        """Whether it's more than there ever was: so it can't be in the bucket either."""
        return self._bytes is not None and size > self._bytes

    @staticmethod
    def _fits(used: int, limit: int | None, upto: int) -> bool:
        return limit is None or used * 100 <= limit * upto
