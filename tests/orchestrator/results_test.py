"""Pulling: verified, resumable, never half a file, and honest about what is missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import (
    CloudError,
    FolderError,
    ResultsCorrupt,
    ResultsMissing,
    ResultsPartial,
)
from orchestrator.pulled import PULLED
from orchestrator.results import (
    State,
    pull,
    read_file,
    read_heartbeats,
    read_metrics,
    read_statuses,
)

RUN = "run-261129-120000-abcd"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@dataclass
class Objects:
    """A bucket in memory that can drop the line after so many bytes of a blob."""

    held: dict[str, bytes] = field(default_factory=dict)
    drop_after: int | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)

    def get(self, key: str) -> bytes | None:
        return self.held.get(key)

    def head(self, key: str) -> int | None:
        return len(self.held[key]) if key in self.held else None

    def keys(self, prefix: str) -> Iterator[tuple[str, int]]:
        yield from ((k, len(v)) for k, v in sorted(self.held.items()) if k.startswith(prefix))

    def read_range(self, key: str, start: int) -> Iterator[bytes]:
        self.asked.append((key, start))
        if key not in self.held:
            raise CloudError("NoSuchKey")
        data = self.held[key][start:]
        for at in range(0, len(data), 10):
            if self.drop_after is not None and at >= self.drop_after:
                raise CloudError("the line dropped")
            yield data[at : at + 10]

    def commit(
        self,
        job: str,
        files: dict[str, bytes],
        *,
        seq: int = 1,
        ended: str | None = "done",
        piece: int = 0,
    ) -> str:
        """As a box commits: blobs, a manifest, and COMPLETE if the job has ended.

        `piece`: the size of pieces in which the files went up.
        """
        base = f"runs/{RUN}/jobs/{job}/"
        entries: dict[str, dict[str, Any]] = {
            name: {
                "sha256": sha(data),
                "size": len(data),
                "mode": 0o755 if "bin" in name else 0o644,
            }
            for name, data in files.items()
        }
        blobs = [*files.values()]
        if piece:
            parts = {name: pieces(data, piece) for name, data in files.items()}
            blobs = [part for each in parts.values() for part in each]
            for name, each in parts.items():
                listed = [{"sha256": sha(part), "size": len(part)} for part in each]
                entries[name]["pieces"] = listed
        self.held |= {f"{base}blobs/{sha(data)}": data for data in blobs}
        said: dict[str, Any] = {"format": 1, "run": RUN, "job": job, "seq": seq, "attempt": 1}
        said |= {"at": 1.0, "step": 7, "final": ended is not None, "files": entries}
        key, body = f"{base}manifests/{seq:06d}.json", json.dumps(said).encode()
        self.held[key] = body
        if ended:
            complete = {"manifest": key, "sha256": sha(body), "at": 2.0, "state": ended}
            self.held[base + "COMPLETE"] = json.dumps(complete).encode()
        return key


@pytest.fixture
def bucket() -> Objects:
    return Objects()


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != PULLED)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


FILES = {"log.txt": b"hello\n", "out/model/weights": b"w" * 95, "out/bin/run": b"#!", "out/e": b""}


def test_a_complete_job_comes_home_byte_for_byte_and_mode_for_mode(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", FILES)
    report = pull(bucket, RUN, tmp_path, ["train"])
    assert report.state is State.COMPLETE
    report.raise_unless_complete()
    assert tree(tmp_path / RUN / "train") == FILES
    assert (report.files, report.bytes) == (4, 103)
    assert (tmp_path / RUN / "train" / "out" / "bin" / "run").stat().st_mode & 0o777 == 0o755
    assert tree(tmp_path).keys() == {f"{RUN}/train/{name}" for name in FILES}


def test_what_is_here_already_is_verified_and_not_fetched_again(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", FILES)
    pull(bucket, RUN, tmp_path, ["train"])
    bucket.asked.clear()
    (tmp_path / RUN / "train" / "log.txt").unlink()
    report = pull(bucket, RUN, tmp_path, ["train"])
    assert [key.rpartition("/")[2] for key, _ in bucket.asked] == [sha(b"hello\n")]
    assert tree(tmp_path / RUN / "train") == FILES
    assert report.jobs["train"].fetched_bytes == 6


def test_a_file_that_was_changed_here_is_kept_beside_the_result(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", FILES)
    pull(bucket, RUN, tmp_path, ["train"])
    log = tmp_path / RUN / "train" / "log.txt"
    for number in (1, 2):
        log.write_text(f"mine {number}\n")
        report = pull(bucket, RUN, tmp_path, ["train"])
        assert report.jobs["train"].kept == (f"log.txt as log.txt.local-{number}",)
        assert report.state is State.COMPLETE
        assert f"changed here and kept: train/log.txt as log.txt.local-{number}" in report.words()
    mine = {f"log.txt.local-{number}": b"mine %d\n" % number for number in (1, 2)}
    assert tree(tmp_path / RUN / "train") == FILES | mine
    assert pull(bucket, RUN, tmp_path, ["train"]).jobs["train"].kept == ()


def test_what_an_earlier_pull_brought_is_replaced_and_removed_as_the_job_goes_on(
    bucket: Objects, tmp_path: Path
) -> None:
    first = {"log.txt": b"1\n", "out/checkpoint-5/a": b"5", "out/checkpoint-5/b": b"5b"}
    bucket.commit("train", first, ended=None)
    pull(bucket, RUN, tmp_path, ["train"])
    second = {"log.txt": b"1\n2\n", "out/checkpoint-9/a": b"9"}
    bucket.commit("train", second, seq=2)
    assert pull(bucket, RUN, tmp_path, ["train"]).jobs["train"].kept == ()
    assert tree(tmp_path / RUN / "train") == second
    assert not (tmp_path / RUN / "train" / "out" / "checkpoint-5").exists()


def test_a_changed_file_that_is_no_result_any_more_stays_and_is_told(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", {"out/old": b"old", "out/kept": b"k"}, ended=None)
    pull(bucket, RUN, tmp_path, ["train"])
    out = tmp_path / RUN / "train" / "out"
    (out / "old").write_text("annotated")
    (out / "my own").write_text("notes")
    bucket.commit("train", {"out/kept": b"k"}, seq=2)
    report = pull(bucket, RUN, tmp_path, ["train"])
    assert report.jobs["train"].kept == ("out/old (no longer a result)",)
    mine = {"out/old": b"annotated", "out/my own": b"notes"}
    assert tree(tmp_path / RUN / "train") == {"out/kept": b"k"} | mine


def test_a_damaged_newer_commit_removes_nothing_that_was_pulled(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", {"out/checkpoint-5/a": b"5"}, ended=None)
    pull(bucket, RUN, tmp_path, ["train"])
    bucket.commit("train", {"out/checkpoint-9/a": b"9"}, seq=2, ended=None)
    del bucket.held[f"runs/{RUN}/jobs/train/blobs/{sha(b'9')}"]
    assert pull(bucket, RUN, tmp_path, ["train"]).state is State.CORRUPT
    assert tree(tmp_path / RUN / "train") == {"out/checkpoint-5/a": b"5"}


def test_a_cut_download_leaves_no_file_and_the_next_one_goes_on_from_there(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", {"out/weights": bytes(range(200))})
    bucket.drop_after = 0
    with pytest.raises(CloudError):
        pull(bucket, RUN, tmp_path, ["train"])
    bucket.drop_after = 60
    blob = f"runs/{RUN}/jobs/train/blobs/{sha(bytes(range(200)))}"
    bucket.asked.clear()
    report = pull(bucket, RUN, tmp_path, ["train"])
    assert bucket.asked == [(blob, 0), (blob, 60), (blob, 120), (blob, 180)]
    assert report.state is State.COMPLETE
    assert report.jobs["train"].fetched_bytes == 200
    assert tree(tmp_path / RUN) == {"train/out/weights": bytes(range(200))}


def test_a_part_left_by_a_killed_pull_is_gone_on_with_and_a_wrong_one_is_replaced(
    bucket: Objects, tmp_path: Path
) -> None:
    data = b"0123456789" * 10
    bucket.commit("train", {"out/weights": data})
    for left in (data[:30], b"x" * 30, b"x" * 100, b"x" * 300):
        part = tmp_path / RUN / ".parts" / "train" / f"{sha(data)}-644"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(left)
        (tmp_path / RUN / "train" / "out" / "weights").unlink(missing_ok=True)
        report = pull(bucket, RUN, tmp_path, ["train"])
        assert report.state is State.COMPLETE
        assert tree(tmp_path / RUN) == {"train/out/weights": data}
    assert bucket.asked[0][1] == 30


@pytest.mark.parametrize("damage", [b"W" * 95, b"w" * 9, b"w" * 200, None])
def test_a_damaged_blob_never_gets_its_final_name_and_the_rest_is_brought(
    bucket: Objects, tmp_path: Path, damage: bytes | None
) -> None:
    bucket.commit("train", FILES)
    key = f"runs/{RUN}/jobs/train/blobs/{sha(b'w' * 95)}"
    if damage is None:
        del bucket.held[key]
    else:
        bucket.held[key] = damage
    report = pull(bucket, RUN, tmp_path, ["train"])
    assert report.state is State.CORRUPT
    assert "out/model/weights" in report.jobs["train"].problems[0]
    kept = {name: data for name, data in FILES.items() if name != "out/model/weights"}
    assert tree(tmp_path / RUN / "train") == kept
    with pytest.raises(ResultsCorrupt):
        report.raise_unless_complete()


def test_the_newest_valid_manifest_counts_and_a_broken_one_is_noted(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", {"out/a": b"1"}, ended=None)
    bucket.commit("train", {"out/a": b"2"}, seq=2, ended=None)
    broken = f"runs/{RUN}/jobs/train/manifests/000003.json"
    bucket.held[broken] = b'{"format": 1'
    report = pull(bucket, RUN, tmp_path, ["train"])
    assert tree(tmp_path / RUN / "train") == {"out/a": b"2"}
    assert report.jobs["train"].notes[0].startswith(broken)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//b", "./a", "", "a\0b", "."])
def test_a_path_that_leaves_its_folder_is_refused(
    bucket: Objects, tmp_path: Path, name: str
) -> None:
    bucket.commit("train", {name: b"evil"})
    report = pull(bucket, RUN, tmp_path, ["train"])
    assert report.state is State.CORRUPT
    assert "leaves its folder" in report.jobs["train"].problems[0]
    assert tree(tmp_path) == {}


def test_a_link_in_the_target_folder_doesnt_lead_the_pull_outside(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", {"out/a": b"1"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / RUN / "train").mkdir(parents=True)
    (tmp_path / RUN / "train" / "out").symlink_to(outside)
    with pytest.raises(ResultsCorrupt, match="leads out"):
        pull(bucket, RUN, tmp_path, ["train"])
    assert tree(outside) == {}


@pytest.mark.parametrize(
    "ended, state", [("done", "complete"), ("cut", "partial"), (None, "partial")]
)
def test_complete_and_partial_are_told_apart_by_the_jobs_own_word(
    bucket: Objects, tmp_path: Path, ended: str | None, state: str
) -> None:
    bucket.commit("train", FILES, ended=ended)
    report = pull(bucket, RUN, tmp_path, ["train"])
    assert (report.state, report.jobs["train"].ended) == (state, ended)


def test_a_complete_of_another_manifest_doesnt_make_a_job_complete(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", {"out/a": b"1"})
    bucket.commit("train", {"out/a": b"2"}, seq=2, ended=None)
    assert pull(bucket, RUN, tmp_path, ["train"]).state is State.PARTIAL


def test_a_run_is_as_complete_as_its_least_complete_job(bucket: Objects, tmp_path: Path) -> None:
    nothing = pull(bucket, RUN, tmp_path, ["a", "b"])
    assert nothing.state is State.NOTHING
    with pytest.raises(ResultsMissing):
        nothing.raise_unless_complete()
    bucket.commit("a", FILES)
    partial = pull(bucket, RUN, tmp_path, ["a", "b"])
    assert partial.state is State.PARTIAL
    with pytest.raises(ResultsPartial, match="b nothing"):
        partial.raise_unless_complete()
    bucket.commit("b", FILES)
    assert pull(bucket, RUN, tmp_path, ["a", "b"]).state is State.COMPLETE


def test_files_of_the_same_bytes_are_fetched_once(bucket: Objects, tmp_path: Path) -> None:
    bucket.commit("train", {"out/a": b"same", "out/b": b"same", "out/c/d": b"same"})
    pull(bucket, RUN, tmp_path, ["train"])
    assert len(bucket.asked) == 1
    assert set(tree(tmp_path / RUN / "train").values()) == {b"same"}
    assert len(tree(tmp_path / RUN / "train")) == 3


def test_statuses_heartbeats_and_committed_files_are_read(bucket: Objects) -> None:
    base = f"runs/{RUN}/"
    bucket.commit("a", {"metrics.jsonl": b'{"step": 1}\n{"st\n{"step": 2}\n'})
    bucket.commit("b", {"log.txt": b"x"}, ended="cut")
    bucket.held[base + "jobs/a/status.json"] = b'{"state": "done", "attempt": 2}'
    bucket.held[base + "jobs/c/status.json"] = b'{"state": "running"}'
    bucket.held[base + "boxes/l4/heartbeat.json"] = b'{"phase": "off", "at": 5}'
    statuses = read_statuses(bucket, RUN, ["a", "b", "c", "d"])
    assert [(name, it["complete"]) for name, it in statuses.items()] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]
    assert statuses["a"]["attempt"] == 2
    assert read_heartbeats(bucket, RUN, ["l4", "gone"]) == {"l4": {"phase": "off", "at": 5}}
    assert read_metrics(bucket, RUN, "a") == [{"step": 1}, {"step": 2}]
    assert read_file(bucket, RUN, "b", "log.txt") == b"x"
    assert read_file(bucket, RUN, "b", "none") is None
    assert read_metrics(bucket, RUN, "d") == []


def test_a_link_in_a_jobs_place_doesnt_lead_the_pull_outside(
    bucket: Objects, tmp_path: Path
) -> None:
    bucket.commit("train", {"log.txt": b"1"})
    (tmp_path / "outside").mkdir()
    (tmp_path / RUN).mkdir()
    (tmp_path / RUN / "train").symlink_to(tmp_path / "outside")
    with pytest.raises(ResultsCorrupt, match="leads out"):
        pull(bucket, RUN, tmp_path, ["train"])
    assert tree(tmp_path / "outside") == {}


@pytest.mark.parametrize("in_the_way", ["", RUN, f"{RUN}/train/out", f"{RUN}/train/log.txt/x"])
def test_a_folder_that_cant_take_the_results_is_named(
    bucket: Objects, tmp_path: Path, in_the_way: str
) -> None:
    bucket.commit("train", {"out/a": b"1", "log.txt": b"2"})
    to = tmp_path / "to"
    (to / in_the_way).parent.mkdir(parents=True, exist_ok=True)
    (to / in_the_way).write_text("in the way")
    with pytest.raises(FolderError, match="can't be written") as told:
        pull(bucket, RUN, to, ["train"])
    assert f"gpurun pull {RUN} --to" in told.value.hint


def test_a_heartbeat_that_says_nothing_is_none(bucket: Objects) -> None:
    bucket.held[f"runs/{RUN}/boxes/one/heartbeat.json"] = b'{"phase": 1}'
    assert read_heartbeats(bucket, RUN, ["one"]) == {}
