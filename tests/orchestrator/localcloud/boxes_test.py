"""Boxes under bubblewrap: real processes that boot from RunInstances and end for good."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncssh
import pytest

if TYPE_CHECKING:
    from tests.orchestrator.localcloud.conftest import LocalCloud

pytestmark = pytest.mark.slow
POWER_OFF = "Client.InstanceInitiatedShutdown"


def processes(words: str) -> list[int]:
    """Living processes of this machine whose command line is exactly these words."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if line.rstrip("\0").split("\0") == words.split() and state != "Z":
            found.append(int(entry.name))
    return found


def test_a_power_off_keeps_what_was_synced_and_loses_the_rest(cloud: LocalCloud) -> None:
    box = cloud.launch(
        """
        mkdir -p /opt/results && echo kept > /opt/results/a && echo lost > /opt/results/b
        python3 -c 'from box import *; s3("PUT", "runs/r1/a", open("/opt/results/a","rb").read())'
        poweroff
        sleep 1000
        """
    )
    ended = cloud.wait(box, "terminated")
    assert ended["StateReason"]["Code"] == POWER_OFF
    assert cloud.keys("runs/r1/") == ["runs/r1/a"]
    body = cloud.client("s3").get_object(Bucket=cloud.bucket, Key="runs/r1/a")["Body"].read()
    assert body == b"kept\n"
    assert not cloud.volume(box).exists()
    assert "PublicIpAddress" not in ended
    billed = _billed(cloud, box)
    assert set(billed) == {"compute", "ebs", "ipv4"}
    end = datetime.now(UTC) + timedelta(seconds=2)
    cloud.until(lambda: cloud.bill("r1")["metered_at"] > end.isoformat())
    assert _billed(cloud, box) == billed


def _billed(cloud: LocalCloud, box: str) -> dict[str, str]:
    """Hours by kind of what bills by time; a volume's are to the second."""
    return {line["kind"]: line["hours"] for line in cloud.bill()["items"] if line["id"] == box}


def test_terminating_leaves_no_process_however_it_was_started(cloud: LocalCloud) -> None:
    box = cloud.launch(
        """
        sleep 98760 &
        setsid nohup sleep 98760 >/dev/null 2>&1 &
        (setsid bash -c 'trap "" TERM HUP; sleep 98760 & disown; sleep 98760' &) &
        python3 -c 'import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.environ.clear()
        os.execl("/bin/sleep", "sleep", "98760")'
        """
    )
    cloud.until(lambda: len(processes("sleep 98760")) == 5)
    cloud.terminate(box)
    cloud.wait(box, "terminated")
    assert processes("sleep 98760") == []
    assert cloud.look(box)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"


def test_a_box_terminated_while_it_is_being_started_is_gone_too(cloud: LocalCloud) -> None:
    ec2, boxes = cloud.client("ec2"), []
    for after_ms in range(0, 500, 25):
        boxes.append(cloud.launch("sleep 1000"))
        asyncio.run(asyncio.sleep(after_ms / 1000))
        ec2.terminate_instances(InstanceIds=[boxes[-1]])
    for box in boxes:
        cloud.wait(box, "terminated")


def test_terminating_again_changes_nothing(cloud: LocalCloud) -> None:
    box = cloud.launch("poweroff")
    cloud.wait(box, "terminated")
    again = cloud.terminate(box)
    assert again["CurrentState"]["Name"] == again["PreviousState"]["Name"] == "terminated"
    assert cloud.look(box)["StateReason"]["Code"] == POWER_OFF


def test_a_wedged_box_is_terminated_by_its_schedule(cloud: LocalCloud) -> None:
    box = cloud.launch("echo UP; exec sleep 98761")
    cloud.wait_for_output(box, "UP")
    sleeper = cloud.until(lambda: processes("sleep 98761"))[0]
    wedged = [sleeper, int(Path(f"/proc/{sleeper}/stat").read_text().split()[3])]
    for pid in wedged:
        os.kill(pid, signal.SIGSTOP)
    _schedule_kill(cloud, box, datetime.now(UTC) + timedelta(seconds=2))
    ended = cloud.wait(box, "terminated")
    assert ended["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert processes("sleep 98761") == []
    cloud.until(lambda: not cloud.client("scheduler").list_schedules()["Schedules"])


def _schedule_kill(cloud: LocalCloud, box: str, at: datetime) -> None:
    service = {"Service": "scheduler.amazonaws.com"}
    allow = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": service}
    tagged = {"StringEquals": {"aws:ResourceTag/gpurun:run": "r1"}}
    instances = "arn:aws:ec2:*:123456789012:instance/*"
    kill = {
        "Effect": "Allow",
        "Action": "ec2:TerminateInstances",
        "Resource": instances,
        "Condition": tagged,
    }
    iam = cloud.client("iam")
    trust = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    role = iam.create_role(RoleName="kill", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    document = json.dumps({"Version": "2012-10-17", "Statement": [kill]})
    iam.put_role_policy(RoleName="kill", PolicyName="p", PolicyDocument=document)
    cloud.client("scheduler").create_schedule(
        Name="kill",
        ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        ActionAfterCompletion="DELETE",
        Target={
            "Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances",
            "RoleArn": role,
            "Input": json.dumps({"InstanceIds": [box]}),
        },
    )


def test_a_halted_box_runs_and_bills_on(cloud: LocalCloud) -> None:
    box = cloud.launch("halt; /usr/sbin/halt; echo STILL HERE; sleep 1000", run="halted")
    cloud.wait_for_output(box, "STILL HERE")
    assert cloud.is_in(box, "running")
    billed = _billed(cloud, box)
    assert billed["compute"] == "0.016667"  # the minute that is billed at least
    cloud.until(lambda: _billed(cloud, box)["ebs"] > billed["ebs"])
    cloud.terminate(box)


def test_a_box_sees_itself_as_an_instance(cloud: LocalCloud) -> None:
    box = cloud.launch(
        """
        python3 - <<'PYTHON'
from box import *
import pathlib, socket, subprocess, venv
venv.create("/opt/venv")
run = lambda *argv: subprocess.run(argv, capture_output=True, text=True).stdout.strip()
def reach(host):
    try:
        socket.create_connection((host, 443), timeout=2)
        return True
    except OSError:
        return False
report(
    uid=os.getuid(), host=socket.gethostname(), version=list(sys.version_info[:3]),
    without_token=status(IMDS + "latest/meta-data/instance-id"),
    spot=metadata_status("meta-data/spot/instance-action"),
    id=metadata("meta-data/instance-id"), type=metadata("meta-data/instance-type"),
    zone=metadata("meta-data/placement/availability-zone"),
    region=metadata("meta-data/placement/region"),
    run=metadata("meta-data/tags/instance/gpurun:run"),
    tags=metadata("meta-data/tags/instance/").split(), user_data=metadata("user-data")[:11],
    egress=[reach("192.0.2.1"), reach("10.0.0.1")],
    venv=run("/opt/venv/bin/python", "-c", "import sys; print(sys.prefix)"),
    wheel=pathlib.Path(os.environ["GPURUN_WHEELS"], "cpu", "a.whl").read_text(),
    wheel_writable=os.access(os.environ["GPURUN_WHEELS"], os.W_OK),
    writable=[p for p in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/usr/bin")
              if os.access(p, os.W_OK)],
    login=run("bash", "-lc", "command -v poweroff"), sudo=run("sudo", "-n", "id", "-u"),
    environment=sorted(k for k in os.environ if k.startswith(("AWS", "GPURUN"))),
)
PYTHON
        """
    )  # fmt: skip
    seen = cloud.report()
    cloud.terminate(box)
    assert seen["id"] == seen["host"] == box
    assert (seen["uid"], seen["sudo"]) == (0, "0")
    assert (seen["without_token"], seen["spot"]) == (401, 404)
    assert (seen["type"], seen["zone"], seen["region"]) == ("g6.xlarge", "us-east-1a", "us-east-1")
    assert (seen["run"], "gpurun:run" in seen["tags"]) == ("r1", True)
    assert seen["user_data"] == "#!/bin/bash"
    assert seen["egress"] == [False, False]
    assert seen["venv"] == "/opt/venv"
    assert tuple(seen["version"]) == tuple(sys.version_info[:3])
    assert (seen["wheel"], seen["wheel_writable"]) == ("a wheel", False)
    assert seen["writable"] == []
    assert seen["login"] == "/run/gpurun/bin/poweroff"
    assert seen["environment"] == [
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
        "GPURUN_WHEELS",
    ]


def test_a_box_may_do_to_s3_what_its_role_allows(cloud: LocalCloud) -> None:
    box = cloud.launch(
        """
        python3 -c 'from box import *; report(
            mine=s3("PUT", "runs/r1/mine", b"1"), read=s3("GET", "runs/r1/mine"),
            delete=s3("DELETE", "runs/r1/mine"), other=s3("PUT", "runs/r2/x", b"1"),
            ssh=s3("GET", "control/r1/ssh.json"))'
        """
    )
    assert cloud.report() == {"mine": 200, "read": 200, "delete": 403, "other": 403, "ssh": 403}
    cloud.terminate(box)


def test_a_box_that_stops_keeps_its_disk_and_its_bill_for_it(cloud: LocalCloud) -> None:
    box = cloud.launch("poweroff", run="kept", InstanceInitiatedShutdownBehavior="stop")
    cloud.wait(box, "stopped")
    billed = _billed(cloud, box)
    assert cloud.volume(box).exists()
    cloud.until(lambda: _billed(cloud, box)["ebs"] > billed["ebs"])
    assert _billed(cloud, box)["compute"] == billed["compute"]
    cloud.terminate(box)
    cloud.wait(box, "terminated")
    assert not cloud.volume(box).exists()


@pytest.mark.parametrize("words", ["poweroff -f -f", "shutdown -P now", "systemctl poweroff"])
def test_every_way_to_power_off_ends_the_box(cloud: LocalCloud, words: str) -> None:
    box = cloud.launch(f"setsid sleep 1000 & {words}; sleep 1000")
    assert cloud.wait(box, "terminated")["StateReason"]["Code"] == POWER_OFF


def test_ten_boxes_run_at_once_and_end(cloud: LocalCloud) -> None:
    boxes = [cloud.launch(f"echo READY; exec sleep 9876{n}", run="ten") for n in range(10)]
    for box in boxes:
        cloud.wait_for_output(box, "READY")
    assert all(cloud.is_in(box, "running") for box in boxes)
    cloud.ec2.terminate_instances(InstanceIds=boxes)
    for box in boxes:
        cloud.wait(box, "terminated")
    assert not any(processes(f"sleep 9876{n}") for n in range(10))


def test_ssh_reaches_the_box_by_its_tag_with_the_key_known_in_advance(cloud: LocalCloud) -> None:
    host, user = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    public = user.export_public_key()
    cloud.ec2.import_key_pair(KeyName="k", PublicKeyMaterial=public)
    private = host.export_private_key("openssh").decode()
    box = cloud.launch(
        f"mkdir -p /etc/ssh; cat > /etc/ssh/ssh_host_ed25519_key <<'K'\n{private}K\n"
        "echo $((6*7)) > /opt/answer; sleep 1000",
        KeyName="k",
    )
    running = cloud.wait(box, "running")
    port = int(next(t["Value"] for t in running["Tags"] if t["Key"] == "gpurun:ssh-port"))
    assert running["PublicIpAddress"] == "127.0.0.1"
    kind, blob = host.export_public_key().decode().split()[:2]
    known = asyncssh.import_known_hosts(f"[127.0.0.1]:{port} {kind} {blob}\n")

    async def talk(key: Any) -> tuple[str, str, str]:
        options = {"username": "ubuntu", "client_keys": [key], "known_hosts": known}
        async with asyncssh.connect("127.0.0.1", port, agent_path=None, **options) as there:
            said = await there.run("hostname; pwd; cat /opt/answer; exit 3")
            on_terminal = await there.run("test -t 0 && echo a terminal", term_type="xterm")
            async with there.start_sftp_client() as sftp, sftp.open("/opt/answer") as file:
                return str(said.stdout), str(on_terminal.stdout), str(await file.read())

    def connected() -> tuple[str, str, str] | None:
        try:
            return asyncio.run(talk(user))
        except (OSError, asyncssh.ConnectionLost):
            return None

    said, on_terminal, file = cloud.until(connected)
    assert said.split() == [box, "/home/ubuntu", "42"]
    assert on_terminal.strip() == "a terminal"
    assert file == "42\n"
    with pytest.raises(asyncssh.PermissionDenied):
        asyncio.run(talk(asyncssh.generate_private_key("ssh-ed25519")))
    cloud.terminate(box)


def test_a_box_that_cannot_boot_ends_and_says_why(cloud: LocalCloud, wheels: Path) -> None:
    away = wheels.rename(wheels.with_name("away"))
    try:
        box = cloud.launch("true")
        ended = cloud.wait(box, "terminated")
    finally:
        away.rename(wheels)
    assert ended["StateReason"]["Code"] == "Server.InternalError"
    assert "Can't find source path" in cloud.console(box)


def test_a_box_that_cannot_be_priced_is_not_launched(cloud: LocalCloud) -> None:
    with pytest.raises(cloud.ec2.exceptions.ClientError, match="can't bill"):
        cloud.launch("true", InstanceType="t3.micro")
