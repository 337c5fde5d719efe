"""Remembers which bytes a pull has put under which name, so that a person's own are never lost.

Written down before a file gets its name: what isn't on this list was made or changed here.
"""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

PULLED = ".pulled.jsonl"
CHUNK = 1 << 20


class Pulled:
    """The list of one run's folder; names are relative to it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._list = folder, folder / PULLED
        self._lock = threading.Lock()
        self._ours: dict[str, set[str]] = {}
        for line in self._list.read_bytes().splitlines() if self._list.exists() else []:
            try:
                said = json.loads(line)
                self._ours.setdefault(said["name"], set()).add(said["sha256"])
            except (ValueError, KeyError, TypeError):  # a line that a full disk cut short
                continue

    def add(self, name: str, sha256: str) -> None:
        """A pull is about to put these bytes there. Raises OSError."""
        with self._lock:
            if sha256 in self._ours.get(name, ()):
                return
            with self._list.open("ab") as out:
                out.write(b"\n" + json.dumps({"name": name, "sha256": sha256}).encode())
            self._ours.setdefault(name, set()).add(sha256)

    def make_room(self, name: str) -> str | None:
        """Move aside what isn't ours; the name it has now, None for nothing. Raises OSError."""
        path = self._folder / name
        if not path.is_symlink() and not path.is_file():
            return None
        if self._is_ours(name):
            return None
        with self._lock:
            number = 1
            while (aside := path.with_name(f"{path.name}.local-{number}")).exists():
                number += 1
            path.rename(aside)
        return aside.name

    def drop(self, under: str, keep: set[str]) -> list[str]:
        """Remove what was pulled under `under` and isn't to be kept; what was changed here stays.

        Returns the names of what stays. Raises OSError.
        """
        left = []
        for name in [name for name in self._ours if name.startswith(under) and name not in keep]:
            path = self._folder / name
            if self._is_ours(name):
                path.unlink()
                self._prune(path.parent, self._folder / under)
            elif path.is_symlink() or path.is_file():
                left.append(name.removeprefix(under))
        return left

    def _is_ours(self, name: str) -> bool:
        path = self._folder / name
        if path.is_symlink() or not path.is_file():
            return False
        return hash_of(path) in self._ours.get(name, ())

    def _prune(self, folder: Path, top: Path) -> None:
        while folder != top and folder.is_relative_to(top) and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while block := opened.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()
