"""`make pins`: resolve every stack of templates/pins anew and say what differs from its lock.

What is locked stays unless the `.in` file rules it out, or with --upgrade. Exit status: 0 when
every lock is as resolved (or written so), 1 when one differs or can't be resolved.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.pins import PINS_FOLDER, SIZES, PinEntry, PinSize, known_pins
from tools.locks import lock_changes

ROOT = Path(__file__).resolve().parent.parent
UV = (str(Path(sys.executable).parent / "uv"), "--no-config", "--quiet")
PLATFORM = "x86_64-manylinux_2_35"
"""Ubuntu 22.04's glibc; vLLM's own requirements need 2.31."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Where a lock for any Python must be as resolved."""
SCRATCH = ROOT / ".wheels-pins"
"""Where sizes are measured: a stack and its cache take 13 GB for a while."""


class Unresolved(Exception):
    """No set of versions and files fits; the message is the resolver's."""


def main() -> int:
    """Parse the command line and do it."""
    parser = argparse.ArgumentParser(prog="make pins", description=__doc__)
    parser.add_argument("names", nargs="*", help="stacks; all of them by default")
    parser.add_argument("--write", action="store_true", help="write the locks that differ")
    parser.add_argument("--upgrade", action="store_true", help="take the newest of everything")
    parser.add_argument(
        "--sizes", action="store_true", help="install each and note what it weighs"
    )
    asked = parser.parse_args()
    names = asked.names or list(known_pins())
    if unknown := set(names) - known_pins().keys():
        parser.error(f"no pins {', '.join(sorted(unknown))}; there are {', '.join(known_pins())}")
    same = [renewed(name, write=asked.write, upgrade=asked.upgrade) for name in names]
    if asked.sizes:
        _write_sizes(names)
    return 0 if all(same) else 1


def renewed(name: str, *, write: bool, upgrade: bool) -> bool:
    """Whether the lock is as resolved now; says what differs, and writes it if asked to."""
    lock = PINS_FOLDER / known_pins()[name].file
    old = lock.read_text("utf-8") if lock.is_file() else ""
    try:
        new = resolve(lock.with_suffix(".in"), known_pins()[name], "" if upgrade else old)
    except Unresolved as error:
        _say(f"{name}: can't be resolved\n{error}")
        return False
    python = known_pins()[name].python
    lines = lock_changes(old, new, [python] if python else PYTHONS)
    _say(f"{name}: {len(lines)} packages differ" if lines else f"{name}: as locked")
    for line in lines:
        _say(f"  {line}")
    if lines and write:
        lock.write_text(new, "utf-8")
        _say(f"  written to {lock.name}; now `make pins SIZES=1`")
    return write or not lines


def resolve(asked: Path, entry: PinEntry, locked: str) -> str:
    """The text of the lock for that `.in` file, which keeps what `locked` has where it can.

    Raises Unresolved.
    """
    with tempfile.TemporaryDirectory() as scratch:
        lock, left_out = Path(scratch) / "lock.txt", Path(scratch) / "without.in"
        lock.write_text(locked, "utf-8")
        left_out.write_text("\n".join(entry.without), "utf-8")
        command = ["pip", "compile", str(asked), "-o", str(lock), *_target(entry), *_files(entry)]
        command += ["--generate-hashes", "--no-header", "--no-annotate"]
        _uv([*command, "--excludes", str(left_out)], find_links=entry.python is None)
        return lock.read_text("utf-8")


def measure(lock: Path, entry: PinEntry) -> PinSize:
    """Download and install what the lock names, for Linux x86_64, and weigh it.

    Raises Unresolved.
    """
    SCRATCH.mkdir(exist_ok=True)
    one = ["--python-version", entry.python or "3.12", "--python-platform", PLATFORM]
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        told, target = Path(scratch) / "pylock.toml", Path(scratch) / "installed"
        command = ["pip", "compile", str(lock), "--no-deps", "--format", "pylock.toml", *one]
        _uv([*command, *_files(entry), "-o", str(told)])
        install = ["pip", "install", "--target", str(target), "--cache-dir", f"{scratch}/cache"]
        _uv(
            [
                *install,
                *one,
                "--python",
                sys.executable,
                "--require-hashes",
                "--no-deps",
                "-r",
                str(lock),
            ]
        )
        packages = tomllib.loads(told.read_text("utf-8"))["packages"]
        return PinSize(
            lock=hashlib.sha256(lock.read_bytes()).hexdigest(),
            wheels=len(packages),
            download_bytes=sum(map(_heaviest, packages)),
            installed_bytes=sum(512 * path.lstat().st_blocks for path in target.rglob("*")),
        )


def _write_sizes(names: Sequence[str]) -> None:
    sizes = json.loads(SIZES.read_text("utf-8")) if SIZES.is_file() else {}
    for name in names:
        entry = known_pins()[name]
        size = measure(PINS_FOLDER / entry.file, entry)
        _say(f"{name}: {size.wheels} files, {size.download_gb} GB, {size.disk_gb} GB of disk")
        sizes[name] = size.model_dump()
        SIZES.write_text(json.dumps(sizes, indent=1, sort_keys=True) + "\n", "utf-8")


def _target(entry: PinEntry) -> list[str]:
    if entry.python is None:
        return ["--universal", "--python-version", "3.11"]
    return ["--python-version", entry.python, "--python-platform", PLATFORM]


def _files(entry: PinEntry) -> list[str]:
    """Wheels alone: a source archive would hide that nothing fits, and be compiled on the box."""
    if not entry.sources:
        return ["--no-build"]
    sources = [word for name in entry.sources for word in ("--no-binary", name)]
    return ["--only-binary", ":all:", *sources]


def _heaviest(package: dict[str, Any]) -> int:
    """Of the files of a package that fit; a box takes one of them."""
    files = package.get("wheels") or [package["sdist"]]
    return max(int(file["size"]) for file in files)


def _uv(arguments: Sequence[str], *, find_links: bool = False) -> None:
    environment = dict(os.environ)  # noqa: TID251 - a tool for people, run by make
    links = environment.get("UV_FIND_LINKS") or environment.get("PIP_FIND_LINKS")
    environment.pop("UV_FIND_LINKS", None)
    if find_links and links:
        environment["UV_FIND_LINKS"] = links
    done = subprocess.run(
        [*UV, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unresolved(done.stderr.strip())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
