"""Which files of a job may be named in a manifest now.

The unit is a file, or a whole checkpoint folder: TRL writes `checkpoint-N` in place, with
`trainer_state.json` last, so a checkpoint counts once that file parses, and then as one. Other
trainers write no such file: where no checkpoint beside it has one, it counts once all of it has
rested.
Links and special files are refused: a manifest names bytes that the job made, nothing else.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from orchestrator.box.regular import open_regular

CHECKPOINT = re.compile(r"checkpoint-\d+")
MARKER = "trainer_state.json"
OWN = ("metrics.jsonl", "log.txt", "stacks.txt")
GROWING = (".jsonl", ".log")
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".ckpt")
SMALL = 32 << 20
"""Bytes that are uploaded in no time."""
EVERYTHING = (".",)
"""As results: the whole work folder."""
OUT = "out"
"""The folder that is there before a job starts."""
UNPACKED_NS = 0
"""When a file of a workdir's archive was changed last, as we pack it."""
CACHE = "__pycache__"
DEPTH = 4
"""Folders below a results path in which each tick looks for checkpoints."""


@dataclass(frozen=True)
class Found:
    """One regular file. `grows`: written by appending, so any prefix of it is a valid snapshot."""

    path: Path
    name: str
    """Relative to the results root, in POSIX form."""
    size: int
    mtime_ns: int
    inode: int
    mode: int
    grows: bool
    ctime_ns: int
    """The kernel's own: a program that sets a file's mtime back can't set this one."""

    @property
    def stamp(self) -> tuple[int, int, int, int]:
        return self.size, self.mtime_ns, self.inode, self.ctime_ns


@dataclass(frozen=True)
class Unit:
    """Files that are listed together or not at all."""

    files: tuple[Found, ...]
    checkpoint: str | None
    marked: bool = False
    """Its trainer says that it's complete."""


def scan(job_dir: Path, results: Iterable[str]) -> tuple[list[Unit], list[str]]:
    """In the order in which to save them: metrics and log, the newest checkpoint, the weights.

    The second list says in words what was refused.
    """
    notes: list[str] = []
    own = [_found(job_dir / name, name) for name in OWN]
    files = {found.name: found for found in own if found}
    for path in results:
        for found in _walk(job_dir / "work", path, notes):
            # The job's own log and metrics go by these names: a namesake mustn't be lost to them.
            named = replace(found, name=f"work/{found.name}") if found.name in OWN else found
            files.setdefault(named.name, named)
    return _units(files, job_dir / "work", notes), notes


def again(found: Found) -> Found | None:
    """The same file as it is now; None once it's gone."""
    return _found(found.path, found.name)


def under(job_dir: Path, path: str) -> list[Found]:
    """The files below one folder of the work as they are now, without what is refused."""
    return list(_walk(job_dir / "work", path, []))


def missing(job_dir: Path, results: Iterable[str]) -> tuple[str, ...]:
    """The results paths at which there is nothing.

    An empty folder is something, but for the `out` that we make for every job: where files lie
    outside the results, they are most likely what was to be in it.
    """
    work, results = job_dir / "work", tuple(results)
    gone = [path for path in results if not os.path.lexists(work / path)]
    if OUT in results and _is_hollow(work / OUT) and _has_strays(work, results):
        gone.append(OUT)
    return tuple(path for path in results if path in gone)


def checkpoints(job_dir: Path, results: Iterable[str]) -> frozenset[str]:
    """Names of the complete checkpoint folders among the results, cheap enough for each tick."""
    work = job_dir / "work"
    return frozenset(
        name
        for path in results
        for folder, name in _folders(work / path, _under(work, path), DEPTH)
        if CHECKPOINT.fullmatch(folder.name) and is_complete(folder)
    )


def is_complete(checkpoint: os.PathLike[str]) -> bool:
    try:
        with open_regular(f"{os.fspath(checkpoint)}/{MARKER}") as marker:
            return isinstance(json.loads(marker.read()), dict)
    except (OSError, ValueError, RecursionError):
        return False


@lru_cache(maxsize=4096)
def checkpoint_of(name: str) -> str | None:
    """The outermost checkpoint folder that a result's name lies in."""
    parts = name.split("/")
    for index, part in enumerate(parts[:-1]):
        if CHECKPOINT.fullmatch(part):
            return "/".join(parts[: index + 1])
    return None


def _units(files: dict[str, Found], work: Path, notes: list[str]) -> list[Unit]:
    folders: dict[str, list[Found]] = {}
    singles = []
    for name, found in files.items():
        folder = checkpoint_of(name)
        if folder is None:
            singles.append(Unit((found,), None))
        else:
            folders.setdefault(folder, []).append(found)
    marked = {name for name in folders if is_complete(work / name)}
    # Without a marker where a neighbour has one, or with a broken one: cut off half-way.
    strict = {Path(name).parent for name, all_ in folders.items() if _has_marker(all_)}
    taken = {name for name in folders if name in marked or Path(name).parent not in strict}
    notes += [f"{name}: an incomplete checkpoint, not kept" for name in folders.keys() - taken]
    whole = [Unit(tuple(folders[name]), name, name in marked) for name in folders if name in taken]
    whole.sort(key=lambda unit: -int(str(unit.checkpoint).rpartition("-")[2]))
    newest = {Path(str(unit.checkpoint)).parent: unit.checkpoint for unit in reversed(whole)}
    order = [unit.checkpoint for unit in whole]
    return sorted([*singles, *whole], key=lambda unit: _worth(unit, {*newest.values()}, order))


def _worth(unit: Unit, newest: set[str | None], order: list[str | None]) -> tuple[int, int]:
    """What goes first when time is short: what a run can go on from, then what it says, then all.

    Metrics and logs cost next to nothing and go along at once, unless they are huge.
    """
    found = unit.files[0]
    if unit.checkpoint:
        return (1 if unit.checkpoint in newest else 4), order.index(unit.checkpoint)
    if found.name in OWN:
        return (0, OWN.index(found.name)) if found.size <= SMALL else (5, found.size)
    if found.path.suffix in WEIGHTS:
        return 2, found.size
    return (3 if found.size <= SMALL else 5), found.size


def _has_marker(files: list[Found]) -> bool:
    return any(found.path.name == MARKER for found in files)


def _walk(work: Path, path: str, notes: list[str]) -> Iterator[Found]:
    start = work / path
    way = (start, *start.parents[: len(start.parts) - len(work.parts)])
    if any(part.is_symlink() for part in way):
        notes.append(f"{path}: a link, not kept")
    elif start.is_dir():
        yield from _below(start, _under(work, path), notes)
    else:
        yield from _one(start, start.relative_to(work).as_posix(), notes)


def _below(folder: os.PathLike[str], under: str, notes: list[str]) -> Iterator[Found]:
    """Every file below a folder, first its own. A job has thousands, so each is asked once."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            yield from _one(entry, under + entry.name, notes)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry, f"{under}{entry.name}/", notes)


def _under(work: Path, path: str) -> str:
    """What the names of files below a results path begin with."""
    name = (work / path).relative_to(work).as_posix()
    return "" if name == "." else f"{name}/"


def _one(item: Path | os.DirEntry[str], name: str, notes: list[str]) -> Iterator[Found]:
    try:
        seen = item.stat(follow_symlinks=False)
        name.encode("utf-8")
    except FileNotFoundError:
        return
    except UnicodeEncodeError:
        notes.append(f"{name!r}: its name isn't UTF-8, not kept")
        return
    if stat.S_ISREG(seen.st_mode):
        yield _regular(Path(item), name, seen)
    else:
        what = "a link" if stat.S_ISLNK(seen.st_mode) else "no regular file"
        notes.append(f"{name}: {what}, not kept")


def _found(path: Path, name: str) -> Found | None:
    try:
        seen = path.lstat()
    except OSError:
        return None
    return _regular(path, name, seen) if stat.S_ISREG(seen.st_mode) else None


def _regular(path: Path, name: str, seen: os.stat_result) -> Found:
    grows = name in OWN or name.endswith(GROWING) or "tfevents" in name
    mode = stat.S_IMODE(seen.st_mode)
    when = seen.st_mtime_ns, seen.st_ctime_ns
    return Found(path, name, seen.st_size, when[0], seen.st_ino, mode, grows, when[1])


def _is_hollow(folder: Path) -> bool:
    """A folder, not a link to one, with nothing in it but folders."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    return not any(names for _, _, names in os.walk(folder))


def _has_strays(work: Path, results: tuple[str, ...]) -> bool:
    """Whether the job made or changed a file that no results path takes along."""
    taken = {work / path for path in results}
    for folder, folders, names in os.walk(work):
        folders[:] = [sub for sub in folders if sub != CACHE and Path(folder) / sub not in taken]
        paths = (Path(folder) / name for name in names)
        if any(path not in taken and _is_made(path) for path in paths):
            return True
    return False


def _is_made(path: Path) -> bool:
    try:
        seen = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(seen.st_mode) and seen.st_mtime_ns != UNPACKED_NS


def _folders(
    start: os.PathLike[str], under: str, depth: int
) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Each with its name relative to the work folder."""
    try:
        below = [entry for entry in os.scandir(start) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for folder in below:
        name = under + folder.name
        yield folder, name
        if depth > 1 and not CHECKPOINT.fullmatch(folder.name):
            yield from _folders(folder, f"{name}/", depth - 1)
