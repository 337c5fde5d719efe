"""A results file survives a kill at any byte, and never mixes two measurements."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from agent_env.errors import ResultsError
from agent_env.evaluation.results import ResultsFile, comparable, read_results

from .made import header, row

ROWS = [row(index=index, attempt=attempt) for index in range(2) for attempt in range(2)]


def written(path: Path) -> bytes:
    with ResultsFile(path, header()) as results:
        for each in ROWS:
            results.append(each)
    return path.read_bytes()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written(tmp_path / "r.jsonl")
    assert read_results(tmp_path / "r.jsonl") == (header(), ROWS)


def test_a_file_cut_at_any_byte_is_gone_on_with(tmp_path: Path) -> None:
    content = written(tmp_path / "whole.jsonl")
    for size in range(0, len(content), 7):
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(content[:size])
        with ResultsFile(cut, header()) as results:
            there = results.rows
            for each in ROWS[len(there) :]:
                results.append(each)
        assert there == ROWS[: max(0, content[:size].count(b"\n") - 1)]
        assert cut.read_bytes() == content


def test_a_later_row_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    with ResultsFile(tmp_path / "r.jsonl", header()) as results:
        results.append(row(reward=None, code="ServerDown"))
        results.append(row(reward=0.5, tries=2))
    _, (last,) = read_results(tmp_path / "r.jsonl")
    assert (last.reward, last.tries) == (0.5, 2)


@pytest.mark.parametrize(
    "other",
    [
        {"bundle_hash": "f" * 64},
        {"split": "train"},
        {"policy": "random:1"},
        {"seed": 1},
        {"attempts": 3},
        {"tasks": 1},
        {"reward": "near"},
        {"sampling": {"temperature": 1.0}},
        {"max_calls": 3},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_measurement_is_refused_by_what_differs(
    other: dict[str, Any], tmp_path: Path
) -> None:
    content = written(tmp_path / "r.jsonl")
    (name,) = other
    with pytest.raises(ResultsError, match=f"{name} is .* in the file and .* now; name another"):
        ResultsFile(tmp_path / "r.jsonl", header(**other))
    assert (tmp_path / "r.jsonl").read_bytes() == content


def test_other_versions_are_no_other_measurement(tmp_path: Path) -> None:
    written(tmp_path / "r.jsonl")
    with ResultsFile(tmp_path / "r.jsonl", header(versions={"python": "4"})) as results:
        assert results.rows == ROWS


@pytest.mark.parametrize("content", ["# notes\n", "{}\n", "no newline", '{"format": "else"}\n'])
def test_a_file_of_somebody_else_is_left_as_it_is(content: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text(content)
    with pytest.raises(ResultsError, match="is no results file"):
        ResultsFile(tmp_path / "notes", header())
    assert (tmp_path / "notes").read_text() == content


def test_two_evals_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with ResultsFile(path, header()), pytest.raises(ResultsError, match="by another eval"):
        ResultsFile(path, header())
    ResultsFile(path, header()).close()


def test_a_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    content = written(tmp_path / "r.jsonl").splitlines(keepends=True)
    (tmp_path / "r.jsonl").write_bytes(b"".join([*content[:2], b'{"task": "t"}\n', *content[2:]]))
    with pytest.raises(ResultsError, match=r"line 3: split: Field required"):
        read_results(tmp_path / "r.jsonl")


@pytest.mark.parametrize("path", ["", "folder/r.jsonl"])
def test_a_path_that_can_not_be_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="can't be written"):
        ResultsFile(tmp_path / path, header())
    with pytest.raises(ResultsError, match="can't be read" if not path else "there is no folder"):
        read_results(tmp_path / path)


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ResultsFile(path, header()) as results:
        results.append(ROWS[0])
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, hard))
        try:
            for said in ("the disk is full", "can't be written"):
                with pytest.raises(ResultsError, match=said):
                    results.append(ROWS[1])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with ResultsFile(path, header()) as results:
        assert results.rows == ROWS[:1]


def test_runs_are_compared_without_their_times_and_order() -> None:
    later = [row(index=each.index, attempt=each.attempt, seconds=9.0) for each in ROWS]
    assert comparable(later[::-1]) == comparable(ROWS)
    assert comparable([*later[1:], row(reward=0.25)]) != comparable(ROWS)
