"""A results file: JSON lines, a header first, then a row for each attempt as it ends.

Each line is written whole and at once, so that a process killed at any moment leaves at most one
torn line at the end, which the next one drops. A later row of an attempt takes the place of an
earlier one.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_env.errors import ResultsError
from agent_env.nearest import nearest

FORMAT: Literal["agent-env results"] = "agent-env results"
VERSION: Literal[1] = 1
_MARK = json.dumps({"format": FORMAT}, separators=(",", ":"))[:-1].encode()


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(_Frozen):
    """What was measured. Two files with another `identity` don't mix."""

    format: Literal["agent-env results"] = FORMAT
    version: Literal[1] = VERSION
    env: str
    """The bundle's name."""
    bundle_hash: str | None
    """None where a stock server tells none."""
    split: str
    tasks: int
    """How many of the split, from the first."""
    attempts: int
    policy: str
    sampling: dict[str, Any] = Field(default_factory=dict)
    """What a model's policy was told beyond its own defaults."""
    seed: int
    reward: str | None
    """As the server says: a score's id, "mean", "function"; None is the bundle's own reward."""
    max_calls: int
    tools: list[dict[str, Any]]
    versions: dict[str, str]

    def identity(self) -> dict[str, Any]:
        """What must be equal to go on with a file."""
        return self.model_dump(exclude={"versions", "tools"})


class Row(_Frozen):
    """What came of one attempt."""

    task: str
    split: str
    index: int
    attempt: int
    seed: int
    tries: int
    """How often it was played; the ones before were unscored."""
    status: Literal["scored", "unscored"]
    reward: float | None
    scores: dict[str, float]
    code: str | None
    """Unscored: the error's class."""
    error: str | None
    cut: bool
    """The policy was stopped at the limit of its tool calls."""
    turns: int
    tool_calls: int
    tool_failures: int
    seconds: float
    hashes: list[str]
    """SHA-256 of each observation, the reset's first."""
    messages: list[dict[str, Any]]

    @property
    def key(self) -> tuple[str, int]:
        """The task's id and the attempt."""
        return self.task, self.attempt


class ResultsFile:
    """A results file that is being written; `with` lets go of it."""

    def __init__(self, path: Path, header: Header) -> None:
        """Begin the file, or go on with what is there.

        Raises ResultsError when it isn't ours, holds another measurement, is being written by
        another process, or can't be opened.
        """
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise ResultsError(f"{path} can't be written: {error.strerror}") from error
        try:
            self.rows = self._begin(header)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, row: Row) -> None:
        """Write one row. Raises ResultsError when there is no room for it."""
        self._write(row.model_dump_json())

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, header: Header) -> list[Row]:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsError(f"{self.path} is being written by another eval") from None
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if not whole and (content.startswith(_MARK) or _MARK.startswith(content)):
            os.ftruncate(self._descriptor, 0)
            self._write(header.model_dump_json())
            return []
        found, rows = parse_results(whole, self.path)
        _check_same(found, header, self.path)
        os.ftruncate(self._descriptor, len(whole))
        return rows

    def _write(self, line: str) -> None:
        data = line.encode() + b"\n"
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            raise ResultsError(f"{self.path} can't be written: {error.strerror}") from error
        if written < len(data):
            raise ResultsError(f"{self.path} can't be written: the disk is full")


def read_results(path: Path) -> tuple[Header, list[Row]]:
    """Header and the last row of each attempt; a torn last line is left out.

    Raises ResultsError.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ResultsError(_not_there(path)) from None
    except OSError as error:
        raise ResultsError(f"{path} can't be read: {error.strerror}") from error
    return parse_results(content[: content.rfind(b"\n") + 1], path)


def _not_there(path: Path) -> str:
    """That there is no such file, and which results files are beside it."""
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"{path} isn't there: there is no folder {folder}"
    beside = sorted(file.name for file in folder.glob("*.jsonl"))
    if not beside:
        return f"{path} isn't there, and no .jsonl file is in {folder}; agent-env eval writes one"
    return f"{path} isn't there; {nearest(path.name, beside, listed=f'in {folder} are')}"


def parse_results(content: bytes, path: Path) -> tuple[Header, list[Row]]:
    """The same of whole lines."""
    first, *rest = content.splitlines() or [b""]
    try:
        header = Header.model_validate_json(first)
    except ValidationError:
        hint = "it doesn't begin with the header of agent-env eval"
        raise ResultsError(f"{path} is no results file: {hint}") from None
    rows: dict[tuple[str, int], Row] = {}
    for number, line in enumerate(rest, start=2):
        try:
            row = Row.model_validate_json(line)
        except ValidationError as error:
            raise ResultsError(f"{path}, line {number}: {_first(error)}") from None
        rows[row.key] = row
    return header, sorted(rows.values(), key=lambda row: (row.index, row.attempt))


def comparable(rows: Iterable[Row]) -> str:
    """What two runs of the same policy must agree on, letter by letter, as JSON lines.

    Times, and how often a server had to be waited for, are not in it.
    """
    left_out = {"seconds", "tries"}
    lines = (row.model_dump(mode="json", exclude=left_out) for row in _sorted(rows))
    return "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)


def _sorted(rows: Iterable[Row]) -> Sequence[Row]:
    return sorted(rows, key=lambda row: (row.split, row.index, row.attempt))


def _check_same(found: Header, wanted: Header, path: Path) -> None:
    there, here = found.identity(), wanted.identity()
    differing = [
        f"{name} is {there[name]!r} in the file and {here[name]!r} now"
        for name in here
        if there[name] != here[name]
    ]
    if differing:
        what = "; ".join(differing)
        raise ResultsError(f"{path} is of another measurement: {what}; name another file")


def _first(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in fault["loc"]) or "the line"
    return f"{where}: {fault['msg']}"
