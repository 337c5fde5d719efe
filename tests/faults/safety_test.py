"""docs/safety.md names the planted bugs as they are, and code that is where it says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.bugs import BUGS, Bug
from tests.faults.world import Enforcers

PAGE = Path(__file__).parents[2] / "docs" / "safety.md"
_BLOCK = re.compile(r"<!-- bugs: [^\n]*-->\n(.*?)<!-- /bugs -->", re.DOTALL)


def table() -> str:
    rows = [f"| {bug.what} | {_struck(bug)} | {_at_work(bug.enforcers)} |" for bug in BUGS]
    return "\n".join(["| bug | found under | at work |", "|---|---|---|", *rows, ""])


def _struck(bug: Bug) -> str:
    if bug.schedule:
        return " ".join(f"`{fault}`" for fault in bug.schedule.split())
    if not bug.kinds:
        return "no fault at all"
    kinds = ", ".join(f"`{kind}`" for kind in bug.kinds)
    calls = ", ".join(f"`{operation}`" for operation in bug.operations)
    return f"{kinds} at {calls or 'any call'}"


def _at_work(enforcers: Enforcers) -> str:
    names = {"L1": enforcers.controller, "L2": enforcers.box, "L3": enforcers.cloud}
    return "L0, " + ", ".join(name for name, works in names.items() if works)


def test_the_page_has_the_planted_bugs_as_they_are() -> None:
    found = _BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert found
    assert found[1] == table()


def test_the_page_names_at_least_ten_planted_bugs() -> None:
    assert len({bug.what for bug in BUGS}) >= 10
