"""The files that git keeps, or would keep."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE = (".venv", ".wheels", ".hypothesis", ".gpurun", ".gpu-check")
TEXT = {".py", ".md", ".txt", ".in", ".toml", ".yaml", ".yml", ".json", ".jsonl", ".j2", ".sh", ""}


@cache
def kept_files() -> tuple[Path, ...]:
    """Tracked files and new ones that aren't ignored; in an export without git, every file."""
    if not (ROOT / ".git").exists():
        return tuple(path for path in ROOT.rglob("*") if path.is_file() and not _made(path))
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return tuple(path for path in paths if path.is_file())


def text_files() -> list[Path]:
    """Those of them that a person reads."""
    return [path for path in kept_files() if path.suffix in TEXT]


def lines_matching(pattern: str) -> list[str]:
    """`file:line: text` for each line of a text file that the regular expression finds."""
    found = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in text_files()
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
        if found.search(line)
    ]


def _made(path: Path) -> bool:
    """Whether make, a test or a run made it."""
    parts = path.relative_to(ROOT).parts
    return parts[0] in {"results", "build", "dist", "gpu-check.json"} or any(
        part == "__pycache__" or part.endswith(("_cache", ".egg-info")) or part.startswith(MADE)
        for part in parts
    )
