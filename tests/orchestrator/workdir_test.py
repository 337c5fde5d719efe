"""A job's folder: ignored files stay at home, and the same files are the same bytes."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from orchestrator.pulled import PULLED
from orchestrator.workdir import WorkdirError, list_workdir, pack_workdir

IGNORED = "*.pt\n/data/\n!keep.pt\n"


def fill(folder: Path) -> Path:
    for name in ("train.py", "src/model.py", "big.pt", "src/keep.pt", "data/rows.csv", "a.log"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (folder / ".gitignore").write_text(IGNORED)
    (folder / "src" / ".gitignore").write_text("*.log\n")
    (folder / "src" / "noise.log").write_text("x")
    return folder


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


EXPECTED = [".gitignore", "a.log", "src/.gitignore", "src/keep.pt", "src/model.py", "train.py"]


def names(folder: Path) -> list[str]:
    return sorted(path.as_posix() for path in list_workdir(folder))


def test_ignored_files_stay_at_home_without_git(tmp_path: Path) -> None:
    assert names(fill(tmp_path)) == EXPECTED


def test_ignored_files_stay_at_home_in_a_git_work_tree(tmp_path: Path) -> None:
    git(fill(tmp_path), "init", "-q")

    assert names(tmp_path) == EXPECTED


@pytest.mark.parametrize("in_git", [False, True])
def test_results_that_a_pull_brought_home_stay_at_home(tmp_path: Path, in_git: bool) -> None:
    fill(tmp_path)
    if in_git:
        git(tmp_path, "init", "-q")
    home = tmp_path / "results" / "run-1"
    (home / "train" / "out").mkdir(parents=True)
    (home / PULLED).write_text("")
    (home / "train" / "out" / "model").write_text("1")
    (tmp_path / "results" / "mine").write_text("2")

    assert names(tmp_path) == sorted([*EXPECTED, "results/mine"])


def test_a_tracked_file_that_was_deleted_is_left_out(tmp_path: Path) -> None:
    git(fill(tmp_path), "init", "-q")
    git(tmp_path, "add", ".")
    (tmp_path / "a.log").unlink()

    assert names(tmp_path) == [name for name in EXPECTED if name != "a.log"]


def test_a_folder_inside_a_work_tree_obeys_the_ignore_file_above(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.secret\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "run.sh").write_text("x")
    (tmp_path / "job" / "my.secret").write_text("x")

    assert names(tmp_path / "job") == ["run.sh"]


def test_the_same_files_are_the_same_bytes_wherever_and_whenever(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        fill(tmp_path / name)
    os.utime(tmp_path / "two" / "train.py", (1, 1))
    (tmp_path / "two" / "train.py").chmod(0o600)

    packed = pack_workdir(tmp_path / "one")
    assert packed == pack_workdir(tmp_path / "two")
    assert packed[4:8] == bytes(4), "gzip's header holds the time"


def test_contents_links_and_the_executable_bit_travel(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "train.py").chmod(0o755)
    (tmp_path / "latest").symlink_to("src")

    with tarfile.open(fileobj=io.BytesIO(pack_workdir(tmp_path))) as archive:
        train, latest = archive.getmember("train.py"), archive.getmember("latest")
        content = archive.extractfile("src/model.py")
        assert content is not None
        assert content.read() == b"src/model.py"

    assert train.mode == 0o755
    assert (train.mtime, train.uid, train.uname) == (0, 0, "")
    assert (latest.issym(), latest.linkname) == (True, "src")


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "secrets").symlink_to("/etc")

    with pytest.raises(WorkdirError, match="secrets is a link out of the folder"):
        pack_workdir(folder)
