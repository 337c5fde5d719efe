"""A folder of checkpoints after a crash: the newest whole one is named, the cut ones are gone."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from agent_env.training.skyrl import checkpoints as skyrl
from agent_env.training.verl import checkpoints as verl


def save(folder: Path, *parts: str) -> None:
    """What is looked at of a checkpoint."""
    folder.mkdir(parents=True)
    for part in parts:
        with zipfile.ZipFile(folder / part, "w") as file:
            file.writestr("state", "x")


@pytest.mark.parametrize("trainer", [verl, skyrl])
@pytest.mark.parametrize("told", [None, "", "10", "30"])
def test_the_newest_whole_checkpoint_is_named_whatever_the_tracker_said(
    tmp_path: Path, trainer: object, told: str | None
) -> None:
    settle, tracker, parts = (
        (verl.settle, verl.TRACKER, [verl.LAST_PART])
        if trainer is verl
        else (skyrl.settle, skyrl.TRACKER, [*skyrl.LAST_PARTS])
    )
    assert settle(tmp_path) == 0
    for step in (10, 20, 30):
        save(tmp_path / f"global_step_{step}", *parts)
    save(tmp_path / "global_step_40", *parts[:-1])
    (tmp_path / "global_step_30" / parts[-1]).write_bytes(b"PK cut")
    if told is not None:
        (tmp_path / tracker).write_text(told)
    assert settle(tmp_path) == 20
    assert (tmp_path / tracker).read_text() == "20"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["global_step_10", "global_step_20", tracker]
    )


def test_a_tracker_without_a_whole_checkpoint_means_the_beginning(tmp_path: Path) -> None:
    (tmp_path / skyrl.TRACKER).write_text("3")
    save(tmp_path / "global_step_3", "data.pt")
    assert skyrl.settle(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
