"""docs/incidents.md and tests/incidents tell of the same incidents."""

from __future__ import annotations

import re

from .tree import ROOT

PAGE, TESTS = ROOT / "docs" / "incidents.md", ROOT / "tests" / "incidents"
ROW = re.compile(r"^\| .+ \| \[(\w+)\]\(\.\./tests/incidents/(\w+)_test\.py\) \|$", re.MULTILINE)


def played() -> set[str]:
    return {path.name.removesuffix("_test.py") for path in TESTS.glob("*_test.py")}


def test_every_incident_with_a_test_is_in_the_table_once_and_the_other_way_round() -> None:
    rows = ROW.findall(PAGE.read_text())
    assert [name for name, file in rows if name != file] == []
    assert sorted(file for _, file in rows) == sorted(played())


def test_every_incident_s_test_names_its_source_in_its_first_line() -> None:
    nameless = [
        name
        for name in played() - {"scenario_0"}
        if not re.match(r'"""[\w./-]+#\d+', (TESTS / f"{name}_test.py").read_text())
    ]
    assert nameless == []
