"""`python3 -m orchestrator.box.rescue --root DIR --box NAME`: a box's results as a tar on stdout.

For when S3 can't be reached: `gpurun rescue` runs it over SSH. Standard library only, reads only,
beside a living agent or without one. After each file comes what it must hash to, so that of a
stream that is cut nothing that arrived is lost; at the end, what was left out and why.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import select
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from orchestrator.box.memory import NAME
from orchestrator.box.regular import open_regular
from orchestrator.box.scan import EVERYTHING, Found, Unit, again, scan
from orchestrator.box.spec import BoxSpec, read_spec

RECORD, END = "record.json", "end.json"
"""What members that aren't files are called; a file's name has a slash in it."""
TRIES = 3
# The reader has all of it once it closes the other way; till then our end must stay open.
HEARD_S = 30
_BLOCK = 1 << 20


class _Digest:
    """Reads what is to go into the tar, and hashes it; what can't be read is filled up."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash, self.short = file, hashlib.sha256(), False

    def read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except OSError:
            data = b""
        self._hash.update(data)
        self.short = self.short or len(data) < size
        return data.ljust(size, b"\0")

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def send(spec: BoxSpec, root: Path, out: IO[bytes]) -> None:
    """Write everything that the box's jobs have made to `out`. Raises OSError."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        notes = {job.name: list(_job(tar, root, job.name, job.results)) for job in spec.jobs}
        said = {"format": 1, "run": spec.run, "box": spec.box, "left_out": notes}
        _json(tar, END, said)


def _job(tar: tarfile.TarFile, root: Path, job: str, results: tuple[str, ...]) -> Iterator[str]:
    """Sends one job's files; yields what was left out, in words."""
    folder = root / "jobs" / job
    units, notes = scan(folder, EVERYTHING if _keeps_all(folder) else results)
    yield from notes
    for unit in units:
        for attempt in range(TRIES):
            wrong = _unit(tar, job, unit)
            if not wrong:
                break
            fresh = [again(found) for found in unit.files]
            unit = Unit(tuple(f for f in fresh if f), unit.checkpoint, unit.marked)
            if attempt == TRIES - 1:
                yield wrong


def _unit(tar: tarfile.TarFile, job: str, unit: Unit) -> str:
    """Send the files, then one record of them all: they count together or not at all."""
    entries = {}
    for found in unit.files:
        try:
            entry = _file(tar, job, found)
        except OSError as error:
            return f"{found.name}: {error.strerror or error}"
        if entry is None:
            return f"{found.name}: it changed, or a disk failed, while it was read"
        entries[found.name] = entry
    _json(tar, RECORD, {"job": job, "files": entries})
    return ""


def _file(tar: tarfile.TarFile, job: str, found: Found) -> dict[str, Any] | None:
    member = tarfile.TarInfo(f"{job}/{found.name}")
    member.size, member.mode = found.size, found.mode & 0o777
    with open_regular(found.path) as file:
        digest = _Digest(file)
        tar.addfile(member, digest)  # type: ignore[arg-type]  # it needs no more than `read`
    now = again(found)
    if digest.short or now is None or (not found.grows and now.stamp != found.stamp):
        return None
    return {"sha256": digest.sha256, "size": found.size, "mode": found.mode & 0o777}


def _keeps_all(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / NAME).read_text()).get("keep_all"))
    except (OSError, ValueError, AttributeError):
        return False


def _json(tar: tarfile.TarFile, name: str, said: dict[str, Any]) -> None:
    data = json.dumps(said).encode()
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def main() -> int:
    parser = argparse.ArgumentParser(prog="orchestrator.box.rescue")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--box", required=True)
    options = parser.parse_args()
    spec = read_spec(options.root / "boxes" / f"{options.box}.json")
    send(spec, options.root, sys.stdout.buffer)
    sys.stdout.buffer.flush()
    select.select([sys.stdin], [], [], HEARD_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
