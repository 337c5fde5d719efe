"""Which results count as never made: where a job's files would be lost, it hasn't ended well."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.box.process import Place, unpack_workdir
from orchestrator.box.scan import missing
from orchestrator.workdir import pack_workdir


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A job's folder as its command finds it: a workdir, and the `out` that is made for it."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("1")
    (tmp_path / "w.tar.gz").write_bytes(pack_workdir(project))
    place = Place(tmp_path, "train")
    unpack_workdir(tmp_path, place, "w.tar.gz")
    (place.work / "out").mkdir()
    return place


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("made")


def test_a_job_that_wrote_nothing_misses_nothing(place: Place) -> None:
    write(place.work / "__pycache__" / "train.pyc")
    assert missing(place.folder, ["out"]) == ()


@pytest.mark.parametrize("name", ["model.bin", "deep/er/model.bin", "train.py"])
def test_an_empty_out_is_missing_once_a_file_lies_elsewhere(place: Place, name: str) -> None:
    write(place.work / name)
    (place.work / "out" / "empty").mkdir()
    assert missing(place.folder, ["out"]) == ("out",)
    assert missing(place.folder, ["never", "out"]) == ("never", "out")
    write(place.work / "out" / "a")
    assert missing(place.folder, ["out"]) == ()


def test_files_that_other_results_take_along_are_not_missed_in_out(place: Place) -> None:
    write(place.work / "models" / "a")
    write(place.work / "table.csv")
    assert missing(place.folder, ["out", "models", "table.csv"]) == ()
    assert missing(place.folder, ["models", "table.csv"]) == ()


def test_an_empty_folder_that_the_job_made_itself_is_something(place: Place) -> None:
    (place.work / "made").mkdir()
    write(place.work / "model.bin")
    assert missing(place.folder, ["made"]) == ()
