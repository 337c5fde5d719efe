"""What S3 holds: buckets, versions of objects, unfinished uploads; and a test's view of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime

from orchestrator.localcloud.meter import Stored
from tests.faults.cloud.account import Account
from tests.faults.cloud.things import Json


@dataclass(slots=True)
class Version:
    """One version of an object; without data, the marker that a deletion leaves."""

    id: str
    data: bytes | None
    etag: str
    at: datetime
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Upload:
    key: str
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass
class BucketState:
    """`objects`: versions by key, the newest last."""

    name: str
    owner: str
    region: str
    made_at: datetime
    versioned: bool = False
    settings: dict[str, Json] = field(default_factory=dict)
    objects: dict[str, list[Version]] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)

    def newest(self, key: str) -> Version | None:
        """The current version; None when there is none, or it's a deletion."""
        versions = self.objects.get(key)
        return versions[-1] if versions and versions[-1].data is not None else None

    def write(self, key: str, version: Version) -> None:
        if self.versioned and key in self.objects:
            self.objects[key].append(version)
        else:
            self.objects[key] = [version]

    def keys(self, prefix: str = "") -> list[str]:
        """Current keys in the order of their names."""
        return sorted(
            key
            for key, versions in self.objects.items()
            if key.startswith(prefix) and versions[-1].data is not None
        )


class Objects(MutableMapping[str, bytes]):
    """A bucket as a dictionary: what is done here is nobody's call, and leaves no trace."""

    def __init__(self, account: Account, bucket: BucketState) -> None:
        self._account, self._bucket = account, bucket

    def __getitem__(self, key: str) -> bytes:
        version = self._bucket.newest(key)
        if version is None or version.data is None:
            raise KeyError(key)
        return version.data

    def __setitem__(self, key: str, data: bytes) -> None:
        self._bucket.objects[key] = [new_version(self._account, data)]

    def __delitem__(self, key: str) -> None:
        del self._bucket.objects[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bucket.keys())

    def __len__(self) -> int:
        return len(self._bucket.keys())


def new_version(account: Account, data: bytes | None, etag: str = "") -> Version:
    if not etag:
        etag = f'"{hashlib.md5(data or b"", usedforsecurity=False).hexdigest()}"'
    return Version(f"v{account.number()}", data, etag, account.timeline.time())


def run_of(key: str) -> str:
    """The run that a key or prefix belongs to; empty for none."""
    head, _, rest = key.partition("/")
    return rest.partition("/")[0] if head == "runs" else ""


def stored(account: Account) -> Iterator[Stored]:
    """Everything that S3 holds for runs, old versions too."""
    for bucket in account.buckets.values():
        for key, versions in bucket.objects.items():
            if run := run_of(key):
                for version in versions:
                    size = len(version.data or b"")
                    yield Stored(run=run, size_bytes=size, since=version.at)
