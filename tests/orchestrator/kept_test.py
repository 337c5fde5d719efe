"""What this machine keeps of a run, and what it says of boxes that went silent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import kept
from orchestrator.errors import RunNotFound
from orchestrator.run import SshSecrets
from orchestrator.silence import Silence

RUN = "kept-261129-120000-ab2c"
KEYS = SshSecrets(user_private="p", user_public="u", host_private="h", host_public="o")


class Record(SimpleNamespace):
    """Stands in for a run's record as far as it is written down."""

    def model_dump_json(self) -> str:
        return "{}"


def test_keys_are_kept_where_nobody_else_reads_them_until_the_run_is_over(tmp_path: Path) -> None:
    record: Any = Record(run_id=RUN)
    kept.keep(tmp_path, record, KEYS)
    kept.keep(tmp_path, record, KEYS)
    folder = tmp_path / "runs" / RUN
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("run.json", "ssh.json"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    kept.forget(tmp_path, RUN)
    assert not folder.exists()
    assert kept.recall(tmp_path, RUN) is None


def test_a_folder_that_cant_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    record: Any = Record(run_id=RUN)
    kept.keep(tmp_path, record, KEYS)
    assert kept.recall(tmp_path, RUN) is None


def test_no_run_id_leads_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        kept.recall(tmp_path, "../../etc")


def seen(state: str, age: float | None) -> Any:
    box = SimpleNamespace(name="l4", state=state, heartbeat_age_s=age)
    return SimpleNamespace(run_id=RUN, boxes=(box,))


@pytest.mark.parametrize(
    "state, age, told",
    [
        ("running", 301, True),
        ("running", 299, False),
        ("running", None, False),
        ("terminated", 999, False),
    ],
)
def test_a_running_box_that_is_silent_longer_than_the_loss_bound_is_told_of(
    state: str, age: float | None, told: bool
) -> None:
    lines = list(Silence(300).lines(seen(state, age)))
    assert [f"gpurun rescue {RUN} l4" in line for line in lines] == [True] * told


def test_a_silent_box_is_told_of_once_each_time_and_never_within_a_minute() -> None:
    silence = Silence(4)
    ages = [59, 61, 62, 2, 61]
    assert [len(list(silence.lines(seen("running", age)))) for age in ages] == [0, 1, 0, 0, 1]
