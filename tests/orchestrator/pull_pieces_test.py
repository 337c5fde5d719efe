"""Pulling files that went up in pieces: each piece is verified, then the whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.results import JobPull, State, pull

from .results_test import RUN, Objects, bucket, pieces, sha, tree

__all__ = ["bucket"]

GROWN = {"log.txt": bytes(range(200)), "out/a.log": bytes(range(80)), "out/same.log": b"12" * 40}


def test_files_in_pieces_come_home_whole_and_a_cut_pull_goes_on_in_the_middle_of_one(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", {"log.txt": GROWN["log.txt"]}, piece=80)
    bucket.drop_after = 50
    report = pull(bucket, RUN, tmp_path, ["train"])
    assert [start for _, start in bucket.asked] == [0, 50, 0, 50, 0]
    assert (report.state, report.bytes, report.files) == (State.COMPLETE, 200, 1)
    assert tree(tmp_path / RUN) == {"train/log.txt": GROWN["log.txt"]}
    bucket.asked.clear()
    pull(bucket, RUN, tmp_path, ["train"])
    assert bucket.asked == []


def test_a_killed_pull_of_pieces_fetches_none_of_them_twice(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", GROWN, piece=40)
    third = f"runs/{RUN}/jobs/train/blobs/{sha(GROWN['log.txt'][80:120])}"
    there = bucket.held.pop(third)
    assert pull_of(bucket, tmp_path).problems == ("log.txt: isn't in the bucket",)
    folder = tmp_path / RUN / ".parts" / "train" / f"{sha(GROWN['log.txt'])}-644-pieces"
    folder.mkdir(parents=True)
    for piece in pieces(GROWN["log.txt"], 40)[:2]:
        (folder / sha(piece)).write_bytes(piece)
    (folder / sha(there)).write_bytes(there[:15])
    bucket.held[third] = there
    bucket.asked.clear()
    assert pull_of(bucket, tmp_path).state is State.COMPLETE
    assert tree(tmp_path / RUN / "train") == GROWN
    assert bucket.asked[0] == (third, 15)
    assert len(bucket.asked) == 3


def pull_of(bucket: Objects, to: Path) -> JobPull:
    return pull(bucket, RUN, to, ["train"]).jobs["train"]


@pytest.mark.parametrize("damage", [b"W" * 40, b"w" * 9, b"w" * 200, None])
def test_a_damaged_piece_costs_its_file_its_name_and_no_other(
    bucket: Objects, tmp_path: Path, damage: bytes | None
) -> None:
    bucket.commit("train", GROWN, piece=40)
    key = f"runs/{RUN}/jobs/train/blobs/{sha(GROWN['log.txt'][80:120])}"
    bucket.held.pop(key)
    bucket.held |= {key: damage} if damage else {}
    found = pull_of(bucket, tmp_path)
    assert (found.state, len(found.problems)) == (State.CORRUPT, 1)
    assert tree(tmp_path / RUN / "train").keys() == GROWN.keys() - {"log.txt"}


def test_pieces_that_make_another_file_than_the_manifest_says_are_damage(
    bucket: Objects, tmp_path: Path
) -> None:
    key = bucket.commit("train", {"log.txt": GROWN["log.txt"]}, piece=80, ended=None)
    said = json.loads(bucket.held[key])
    said["files"]["log.txt"]["pieces"][:2] = reversed(said["files"]["log.txt"]["pieces"][:2])
    bucket.held[key] = json.dumps(said).encode()
    found = pull_of(bucket, tmp_path)
    assert found.problems == ("log.txt: its pieces in the bucket make another file",)
    said["files"]["log.txt"]["pieces"].pop()
    bucket.held[key] = json.dumps(said).encode()
    assert "don't add up" in pull_of(bucket, tmp_path).problems[0]
