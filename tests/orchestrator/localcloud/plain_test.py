"""Boxes that are plain processes: what they still promise, and what is never run in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.errors import CloudError
from orchestrator.localcloud import drivers, hostwords

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.orchestrator.localcloud.conftest import LocalCloud

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def plain(start_cloud: Callable[..., LocalCloud]) -> LocalCloud:
    return start_cloud(driver="process", as_root=True)


def living(marker: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if marker in (entry / "cmdline").read_bytes() and state != "Z":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@slow
def test_a_plain_box_powers_itself_off_by_its_variable(plain: LocalCloud) -> None:
    box = plain.launch(
        """
        echo kept > "$BOX_ROOT/kept"
        python3 -c 'from box import *; assert metadata_status("meta-data/instance-id") == 200
assert status(IMDS + "latest/meta-data/instance-id") == 401
s3("PUT", "runs/r1/plain", open(os.environ["BOX_ROOT"] + "/kept", "rb").read())'
        (setsid sleep 98780 &)
        "$GPURUN_POWEROFF"
        sleep 98780
        """
    )
    ended = plain.wait(box, "terminated")
    assert ended["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert plain.keys() == ["runs/r1/plain"]
    assert not plain.volume(box).exists()
    assert not living(b"sleep\x0098780")


@slow
def test_terminating_a_plain_box_leaves_no_process(plain: LocalCloud) -> None:
    box = plain.launch(
        """
        trap '' TERM
        setsid nohup sleep 98781 >/dev/null 2>&1 &
        (setsid bash -c 'trap "" TERM; sleep 98781 & disown; sleep 98781' &) &
        sleep 98781
        """
    )
    plain.until(lambda: len(living(b"sleep\x0098781")) == 4)
    plain.terminate(box)
    plain.wait(box, "terminated")
    assert not living(b"sleep\x0098781")


@slow
def test_a_script_that_names_a_host_command_is_never_launched(plain: LocalCloud) -> None:
    with pytest.raises(plain.ec2.exceptions.ClientError, match="GPURUN_POWEROFF only"):
        plain.launch("# this would call poweroff one day")
    names = {i["State"]["Name"] for r in _reservations(plain) for i in r["Instances"]}
    assert names <= {"terminated"}


def _reservations(plain: LocalCloud) -> list[dict[str, Any]]:
    return list(plain.ec2.describe_instances()["Reservations"])


@pytest.mark.parametrize("word", hostwords.COMMANDS)
@pytest.mark.parametrize(
    "line", ["{}", "/usr/sbin/{} now", "sudo {}", "# {}", "x=$({} -f)", "a;{};b", "'{}'"]
)
def test_host_commands_are_found_wherever_they_stand(word: str, line: str) -> None:
    assert word in hostwords.refusal(f"#!/bin/bash\necho\n{line.format(word)}\n".encode())


@pytest.mark.parametrize(
    "line",
    [
        '"$GPURUN_POWEROFF"',
        'poweroff_at=1 # {"poweroff_at": 2}',
        "echo rebooting? no: halted-by-hand",
        "init 3; shutdowns=0",
    ],
)
def test_words_that_only_look_like_them_may_stand(line: str) -> None:
    assert hostwords.refusal(line.encode()) == ""


def test_plain_boxes_are_not_run_as_root_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(CloudError, match="as root") as caught:
        drivers.choose("process", as_root=False)
    assert "--as-root" in caught.value.hint
    assert drivers.choose("process", as_root=True) is drivers.PROCESS


def test_without_bubblewrap_the_fallback_is_taken_and_a_demand_for_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert drivers.choose("auto", as_root=False) is drivers.PROCESS
    with pytest.raises(CloudError, match="bwrap isn't installed"):
        drivers.choose("bwrap", as_root=False)


def test_user_data_rendered_for_plain_boxes_may_run_and_the_other_may_not() -> None:
    golden = Path(__file__).parents[2] / "golden"
    assert hostwords.refusal((golden / "process.sh").read_bytes()) == ""
    assert hostwords.refusal((golden / "bwrap.sh").read_bytes()) != ""
