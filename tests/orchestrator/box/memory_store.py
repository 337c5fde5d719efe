"""A bucket in memory behind the box's own store: fast enough for many examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.box.connection import Absent, StoreDown
from orchestrator.box.store import Store

from .rig import BUCKET, PREFIX, REGION


@dataclass
class Held:
    """What is in it, by the keys that a bucket has, and what was ever put into it."""

    objects: dict[str, bytes] = field(default_factory=dict)
    put_bytes: int = 0
    puts_left: int | None = None
    """After so many it can't be reached any more."""


class MemoryStore(Store):
    def __init__(self, held: Held) -> None:
        super().__init__(BUCKET, REGION, PREFIX)
        self.held = held

    def put(self, key: str, data: bytes) -> None:
        if self.held.puts_left == 0:
            raise StoreDown("the line is cut")
        if self.held.puts_left is not None:
            self.held.puts_left -= 1
        self.held.objects[PREFIX + key] = data
        if "/blobs/" in key:
            self.held.put_bytes += len(data)

    def put_new(self, key: str, data: bytes) -> bool:
        if PREFIX + key in self.held.objects:
            return False
        self.put(key, data)
        return True

    def put_over(self, key: str, data: bytes, etag: str) -> bool:
        self.put(key, data)
        return True

    def get_tagged(self, key: str) -> tuple[bytes, str] | None:
        data = self.held.objects.get(PREFIX + key)
        return None if data is None else (data, "")

    def keys(self, under: str) -> list[tuple[str, int]]:
        held = sorted(self.held.objects.items())
        found = ((key[len(PREFIX) :], data) for key, data in held)
        return [(key, len(data)) for key, data in found if key.startswith(under)]

    def chunks(self, key: str) -> Iterator[bytes]:
        data = self.held.objects.get(PREFIX + key)
        if data is None:
            raise Absent(key)
        for at in range(0, len(data), 1000):
            yield data[at : at + 1000]
