"""The cloud's process outlives its starter, is alone in its home, takes its boxes along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.errors import CloudError, NotConfirmed
from orchestrator.localcloud import process
from orchestrator.localcloud.state import read_state, state_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.orchestrator.localcloud.conftest import LocalCloud

pytestmark = pytest.mark.slow
START = "import sys, pathlib; from orchestrator.localcloud import process; "


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def sleepers(words: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes() == words and alive(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_cloud_outlives_its_starter_and_takes_its_boxes_along(
    tmp_path: Path, find_cloud: Callable[[Path], LocalCloud]
) -> None:
    starter = f"{START}process.start(pathlib.Path({str(tmp_path)!r}), driver='bwrap')"
    subprocess.run([sys.executable, "-c", starter], check=True, timeout=60)
    try:
        cloud = find_cloud(tmp_path)
        assert process.start(tmp_path) == cloud.state
        box = cloud.launch("trap '' TERM; (setsid sleep 98771 &); sleep 98771")
        cloud.until(lambda: len(sleepers(b"sleep\x0098771\0")) == 2)
    finally:
        assert process.stop(tmp_path)
    assert not alive(cloud.state.pid)
    assert not sleepers(b"sleep\x0098771\0")
    assert not cloud.volume(box).exists()
    assert not state_path(tmp_path).exists()
    assert not process.stop(tmp_path)


def test_a_cloud_on_which_boxes_run_is_stopped_only_by_a_yes(
    start_cloud: Callable[..., LocalCloud],
) -> None:
    cloud = start_cloud(driver="bwrap")
    box = cloud.launch("sleep 98772", run="mine-261129-193045-k7qm")

    def stop(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "orchestrator.cli", "cloud", "stop", *words]
        env = os.environ | {"GPURUN_HOME": str(cloud.home)}
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)

    refused = stop()
    assert refused.returncode == NotConfirmed.exit_code
    assert "1 box runs on the local cloud, for mine-261129-193045-k7qm" in refused.stderr
    assert "gpurun cloud stop --yes" in refused.stderr
    assert cloud.look(box)["State"]["Name"] in ("pending", "running")
    assert "its buckets and budgets are gone" in stop("--yes").stdout
    assert process.status(cloud.home) is None


def test_starters_at_the_same_moment_all_get_the_one_cloud(tmp_path: Path) -> None:
    starter = f"{START}print(process.start(pathlib.Path({str(tmp_path)!r})).pid)"
    argv = [sys.executable, "-c", starter]
    starters = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        assert len({starter.communicate(timeout=60)[0] for starter in starters}) == 1
        assert [starter.returncode for starter in starters] == [0, 0, 0]
    finally:
        assert process.stop(tmp_path)


def test_a_home_that_cant_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CloudError, match="can't be kept in") as told:
        process.start(tmp_path / "file")
    assert "GPURUN_HOME" in told.value.hint


def test_a_second_cloud_in_one_home_is_refused(cloud: LocalCloud) -> None:
    argv = [sys.executable, "-m", "orchestrator.localcloud", "--home", str(cloud.home)]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == CloudError.exit_code
    assert "gpurun cloud stop" in second.stderr
    assert process.status(cloud.home) == cloud.state


def test_a_killed_cloud_takes_its_boxes_along_and_leaves_room_for_the_next(
    start_cloud: Callable[..., LocalCloud],
) -> None:
    cloud = start_cloud(driver="bwrap")
    cloud.launch("(setsid sleep 98770 &); exec sleep 98770")
    cloud.until(lambda: len(sleepers(b"sleep\x0098770\0")) == 2)
    os.kill(cloud.state.pid, signal.SIGKILL)
    cloud.until(lambda: not sleepers(b"sleep\x0098770\0"))
    assert process.status(cloud.home) is None
    assert process.start(cloud.home, driver="bwrap").pid != cloud.state.pid
    assert not list((cloud.home / "cloud" / "boxes").iterdir())


def test_a_file_of_a_process_that_is_not_a_cloud_is_not_believed(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    text = state_path(cloud.home).read_text().replace(str(cloud.state.pid), str(os.getpid()))
    (tmp_path / "cloud").mkdir()
    state_path(tmp_path).write_text(text)
    assert read_state(tmp_path) is not None
    assert process.status(tmp_path) is None
    assert not process.stop(tmp_path)  # and this test lives on


def test_a_cloud_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CloudError, match="didn't start") as caught:
        process.start(tmp_path, driver="bwrap")
    assert "apt-get install bubblewrap" in caught.value.hint


@pytest.mark.parametrize("header", [{"Origin": "https://example.org"}, {"Host": "example.org"}])
def test_a_web_page_is_not_answered(cloud: LocalCloud, header: dict[str, str]) -> None:
    request = urllib.request.Request(f"{cloud.state.url}/_gpurun/health", headers=header)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=10)


def test_capacity_and_quota_can_be_turned_while_it_runs(cloud: LocalCloud) -> None:
    cloud.post("/_gpurun/rules", {"capacity": {"g6.xlarge/us-east-1b": 0}})
    there: dict[str, Any] = {"Placement": {"AvailabilityZone": "us-east-1b"}}
    with pytest.raises(cloud.ec2.exceptions.ClientError, match="InsufficientInstanceCapacity"):
        cloud.launch("true", **there)
