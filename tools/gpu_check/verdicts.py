"""What was checked, what was seen, and what that amounts to."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["PASS", "FAIL", "SKIPPED"]

ALL_PASSED, FAILED, NO_GPU, INCOMPLETE = 0, 1, 3, 4
"""Exit statuses; 2 is a wrong command line, INCOMPLETE that nothing failed but not all was run."""

WIDTH = 110
"""Columns of the table."""


@dataclass(frozen=True)
class Check:
    """One line of the table; `seen` is the reason where it didn't pass."""

    name: str
    seen: str
    verdict: Verdict


def passed(name: str, seen: str) -> Check:
    return Check(name, seen, "PASS")


def failed(name: str, seen: str) -> Check:
    return Check(name, seen, "FAIL")


def skipped(name: str, why: str) -> Check:
    return Check(name, why, "SKIPPED")


def exit_status(checks: Sequence[Check], *, rehearsal: bool) -> int:
    """0 only when all passed; in a rehearsal, when all did that don't need a GPU."""
    verdicts = {check.verdict for check in checks}
    if "FAIL" in verdicts or "PASS" not in verdicts:
        return FAILED
    return INCOMPLETE if "SKIPPED" in verdicts and not rehearsal else ALL_PASSED


def table(checks: Sequence[Check]) -> str:
    """The checks as text, long reasons folded."""
    name_width = max((len(check.name) for check in checks), default=5)
    lines = [f"{'check':{name_width}}  verdict  seen"]
    for check in checks:
        seen = textwrap.wrap(check.seen, WIDTH - name_width - 11) or [""]
        lines.append(f"{check.name:{name_width}}  {check.verdict:7}  {seen[0]}")
        lines += [f"{'':{name_width + 11}}{more}" for more in seen[1:]]
    return "\n".join(lines)


def summary(checks: Sequence[Check], *, rehearsal: bool, seconds: float) -> str:
    """The last line: how many of each, and what a rehearsal leaves open."""
    counts = Counter[str](check.verdict for check in checks)
    told = ", ".join(
        f"{counts[verdict]} {word}"
        for verdict, word in (("PASS", "passed"), ("FAIL", "failed"), ("SKIPPED", "skipped"))
    )
    only = "; a rehearsal: NOTHING RAN ON A GPU OR UNDER UNSLOTH" if rehearsal else ""
    return f"{told} in {seconds:.0f} s{only}"


def write(path: Path, checks: Sequence[Check], facts: Mapping[str, Any]) -> None:
    """The same for a machine."""
    body = {**facts, "checks": [asdict(check) for check in checks]}
    path.write_text(json.dumps(body, indent=1) + "\n", "utf-8")
