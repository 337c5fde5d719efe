"""A job's own folder: which of its files travel, and the archive they travel in.

Inside a git work tree git itself says what is ignored; elsewhere `.gitignore` files are read by
the same rules. The same files always give the same bytes.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

from orchestrator.pulled import PULLED

MAX_BYTES = 512 * 1024 * 1024
"""A folder beyond this has data or checkpoints in it that no one meant to send along."""


class WorkdirError(ValueError):
    """The folder can't be packed; the message says why."""


def list_workdir(folder: Path) -> list[Path]:
    """Files and links of the folder that aren't git-ignored, relative to it, sorted.

    What a pull brought home isn't among them.

    Raises WorkdirError when a link leads out of the folder.
    """
    listed = _asked_of_git(folder)
    if listed is None:
        listed = list(_walk(folder, folder, ()))
    pulls = _pulls(folder, listed)
    found = sorted(
        path
        for path in listed
        if _is_packable(folder / path) and pulls.isdisjoint((path, *path.parents))
    )
    for path in found:
        _stays_inside(folder, path)
    return found


def size_of(folder: Path, files: list[Path]) -> int:
    """Bytes of the files, before compression."""
    return sum((folder / path).lstat().st_size for path in files)


def pack_workdir(folder: Path) -> bytes:
    """The folder as a tar.gz that depends on names, contents and the executable bit alone.

    Raises WorkdirError for a link out of the folder, or more than MAX_BYTES.
    """
    files = list_workdir(folder)
    if (size := size_of(folder, files)) > MAX_BYTES:
        raise WorkdirError(f"{size:,} bytes, more than {MAX_BYTES:,}")
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in files:
            _add(archive, folder, path)
    return packed.getvalue()


def _add(archive: tarfile.TarFile, folder: Path, path: Path) -> None:
    source = folder / path
    entry = tarfile.TarInfo(path.as_posix())
    if source.is_symlink():
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(source)  # noqa: PTH115
        archive.addfile(entry)
        return
    content = source.read_bytes()
    entry.size = len(content)
    entry.mode = 0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644
    archive.addfile(entry, io.BytesIO(content))


def _pulls(folder: Path, listed: list[Path]) -> set[Path]:
    """Folders below ours that a pull made: results would travel to the next box, and the next."""
    below = {path.parent for path in listed} | {up for path in listed for up in path.parents}
    return {path for path in below - {Path()} if (folder / path / PULLED).is_file()}


def _is_packable(path: Path) -> bool:
    """A file in the index may have been deleted; sockets and devices stay at home."""
    return path.is_symlink() or path.is_file()


def _stays_inside(folder: Path, path: Path) -> None:
    target = (folder / path).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise WorkdirError(f"{path} is a link out of the folder, to {target}")


def _asked_of_git(folder: Path) -> list[Path] | None:
    """None where there is no git, or no work tree around the folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "."]
    try:
        said = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    except OSError:
        return None
    if said.returncode != 0:
        return None
    return list({Path(os.fsdecode(name)) for name in said.stdout.split(b"\0") if name})


def _walk(
    root: Path, folder: Path, above: tuple[tuple[Path, GitIgnoreSpec], ...]
) -> Iterator[Path]:
    ignore = folder / ".gitignore"
    if ignore.is_file():
        lines = ignore.read_text("utf-8", errors="replace").splitlines()
        above = (*above, (folder, GitIgnoreSpec.from_lines(lines)))
    for entry in sorted(folder.iterdir()):
        if entry.name == ".git" or _ignored(entry, above):
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(root, entry, above)
        else:
            yield entry.relative_to(root)


def _ignored(entry: Path, above: tuple[tuple[Path, GitIgnoreSpec], ...]) -> bool:
    """The deepest `.gitignore` with an opinion decides."""
    slash = "/" if entry.is_dir() and not entry.is_symlink() else ""
    for folder, spec in reversed(above):
        verdict = spec.check_file(f"{entry.relative_to(folder).as_posix()}{slash}").include
        if verdict is not None:
            return verdict
    return False
