"""The boxes' stacks: what `make pins` compares and resolves, and what the plan says they weigh."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from orchestrator.box.install import SOURCES
from orchestrator.pins import PINS_FOLDER, PinEntry, known_pins, pin_sizes
from tools import pins
from tools.locks import lock_changes, locked_for

from .tree import ROOT

A, B = "a" * 64, "b" * 64
OLD = f"""one==1.0 \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
two==2.0 \\
    --hash=sha256:{A}
"""
PLAIN = PinEntry(file="x.txt", gpu=True, python="3.12", description="")


def line(requirement: str, *hashes: str) -> str:
    return f"{requirement} {' '.join(f'--hash=sha256:{each}' for each in hashes or (A,))}\n"


def test_the_same_in_another_form_is_no_change() -> None:
    folded = line("one==1.0 ; sys_platform == 'linux'", B, A) + line("Two==2.0")
    assert lock_changes(OLD, folded, ["3.12"]) == []


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (OLD.replace("1.0", "1.1"), "one: 1.0 -> 1.1"),
        (OLD + line("three==3"), "three: not there -> 3"),
        (line("one==1.0", A, B), "two: 2.0 -> gone"),
        (OLD.replace(B, "c" * 64), "one: 1.0: 1 files more, 1 fewer"),
    ],
)
def test_a_change_is_named_with_its_package(new: str, said: str) -> None:
    assert lock_changes(OLD, new, ["3.11", "3.12"]) == [said]


def test_a_change_on_one_python_counts_where_a_lock_is_for_all() -> None:
    old = line("x==1 ; python_full_version < '3.12'") + line(
        "x==2 ; python_full_version >= '3.12'"
    )
    assert lock_changes(old, line("x==1"), ["3.11"]) == []
    assert lock_changes(old, line("x==1"), ["3.11", "3.12"]) == ["x: 2 -> 1"]


def test_what_fits_nothing_is_said_in_the_resolvers_words(tmp_path: Path) -> None:
    asked = tmp_path / "x.in"
    asked.write_text("one==1.0\none==2.0\n")
    with pytest.raises(pins.Unresolved, match="unsatisfiable"):
        pins.resolve(asked, PLAIN, "")


@pytest.mark.parametrize(
    ("resolved", "write", "same", "words"),
    [
        (OLD, False, True, "x: as locked"),
        (OLD.replace("1.0", "1.1"), False, False, "  one: 1.0 -> 1.1"),
        (OLD.replace("1.0", "1.1"), True, True, "  one: 1.0 -> 1.1"),
    ],
)
def test_a_lock_that_differs_fails_unless_it_is_written(
    resolved: str,
    write: bool,
    same: bool,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pins, "PINS_FOLDER", tmp_path)
    monkeypatch.setattr(pins, "known_pins", lambda: {"x": PLAIN})
    monkeypatch.setattr(pins, "resolve", lambda *_: resolved)
    (tmp_path / "x.txt").write_text(OLD)

    assert pins.renewed("x", write=write, upgrade=False) == same
    assert words in capsys.readouterr().out
    assert (tmp_path / "x.txt").read_text() == (resolved if write else OLD)


def test_every_stack_is_weighed_as_it_is_locked() -> None:
    assert pin_sizes().keys() == known_pins().keys()
    for name, size in pin_sizes().items():
        lock = PINS_FOLDER / known_pins()[name].file
        text = lock.read_text()
        assert size.lock == hashlib.sha256(lock.read_bytes()).hexdigest(), (
            f"make pins SIZES=1 {name}"
        )
        assert size.wheels == len(locked_for(text, known_pins()[name].python or "3.12"))
        assert size.download_gb < size.disk_gb


def test_a_box_builds_what_a_stack_has_only_as_source_and_nothing_else() -> None:
    assert {name for entry in known_pins().values() for name in entry.sources} == set(SOURCES)


def test_what_a_stack_leaves_out_is_not_in_its_lock() -> None:
    for name, entry in known_pins().items():
        locked = locked_for((PINS_FOLDER / entry.file).read_text(), entry.python or "3.12")
        assert locked.keys() & entry.without.keys() == set(), name
        assert set(entry.sources) <= locked.keys()


def test_the_page_on_pins_has_every_stack_with_its_sizes() -> None:
    page = (ROOT / "docs" / "pins.md").read_text()
    for name, entry in known_pins().items():
        size = pin_sizes()[name]
        python, told = entry.python or "any", f"{size.download_gb} | {size.disk_gb}"
        assert f"| `{name}` | {entry.description} | {python} | {told} |" in page
