"""What is wrong in a runbook: where it stands, what it is, how to mend it.

Checks return faults instead of raising, so that one run of `gpurun plan` shows all of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.errors import RunbookError

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Fault:
    """One thing to mend. `line` and `column` count from 1; 0 means the file as a whole.

    `fix` is empty where the problem says already what to do.
    """

    path: Path
    problem: str
    fix: str
    line: int = 0
    column: int = 0

    def at(self, line: int, column: int) -> Fault:
        return Fault(self.path, self.problem, self.fix, line, column)

    @property
    def field(self) -> str:
        """`jobs.grpo.results[0]`."""
        parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path]
        return _printable("".join(parts).removeprefix("."))


def did_you_mean(word: str, known: Iterable[str], *, listed: str = "Known here") -> str:
    """The nearest name as a question, and the list of what there is."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    there = f"{listed}: {', '.join(names)}." if names else "There are none."
    return f"Did you mean {near[0]!r}? {there}" if near else there


def runbook_error(file: str, faults: Sequence[Fault]) -> RunbookError:
    """All faults of a file in one error, in the order of their lines."""
    ordered = sorted(faults, key=lambda fault: (fault.line, fault.column, fault.field))
    count = "1 fault" if len(ordered) == 1 else f"{len(ordered)} faults"
    lines = [f"{file}: {count}; nothing was created"]
    lines += [_entry(file, fault) for fault in ordered]
    return RunbookError("\n".join(lines), hint="Mend the runbook and type the command again.")


def _entry(file: str, fault: Fault) -> str:
    where = f"{file}:{fault.line}:{fault.column}" if fault.line else file
    field = f" {fault.field}:" if fault.path else ""
    fix = f"\n      {_printable(fault.fix)}" if fault.fix else ""
    return f"  {where}:{field} {_printable(fault.problem)}{fix}"


def _printable(text: str) -> str:
    """Without what a terminal would obey: a name from a file may hold escape sequences."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
