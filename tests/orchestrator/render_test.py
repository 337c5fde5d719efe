"""User data as it is rendered: safe in any shell, short enough, reviewed as golden files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import jinja2
import pytest

from orchestrator.catalog import load_catalog
from orchestrator.plan import Plan, make_plan
from orchestrator.quote import Cloud
from orchestrator.render import POWEROFF, POWEROFF_BY_VARIABLE, _environment, render_user_data
from orchestrator.runbook import load_runbook

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
GOLDEN = Path(__file__).parent.parent / "golden"
SHELLCHECK = Path(sys.executable).with_name("shellcheck")
RUNBOOK = """
name: golden
cap_usd: 40
regions: [REGION]
boxes:
  l40s: {instance: g6e.4xlarge, hours: 7}
jobs:
  train: {box: l40s, command: python3 train.py}
"""
CASES: dict[str, tuple[Cloud, str, str]] = {
    "aws": ("aws", "us-west-2", POWEROFF),
    "bwrap": ("local", "us-east-1", POWEROFF),
    "process": ("local", "us-east-1", POWEROFF_BY_VARIABLE),
}
# What could end the machine that a plain-process box runs on.
ENDS_A_HOST = re.compile(r"\b(shutdown|poweroff|reboot|halt|systemctl|init 0|sysrq)\b", re.I)


def plan_for(folder: Path, cloud: Cloud, region: str, margin: str = "10m") -> Plan:
    path = folder / "golden.yaml"
    text = RUNBOOK.replace("hours: 7", f"hours: 7, cloud_margin: {margin}")
    path.write_text(text.replace("REGION", region))
    return make_plan(
        load_runbook(path), now=NOW, catalog=load_catalog(), cloud=cloud, allow_stale_prices=True
    )


def render(folder: Path, case: str, *, margin: str = "10m", **changes: str) -> str:
    cloud, region, poweroff = CASES[case]
    said = {
        "run_id": "golden-261129-120000-ab2c",
        "bucket": f"gpurun-123456789012-{region}",
        "payload_sha256": "0123456789abcdef" * 4,
        "poweroff_command": poweroff,
    }
    return render_user_data(plan_for(folder, cloud, region, margin), "l40s", **(said | changes))


@pytest.mark.parametrize("case", CASES)
def test_a_rendered_script_is_the_reviewed_one(case: str, tmp_path: Path) -> None:
    """To renew a golden file after a change: delete it, run this twice, review the difference."""
    script, golden = render(tmp_path, case), GOLDEN / f"{case}.sh"
    if not golden.exists():
        golden.write_text(script)
        pytest.fail(f"wrote {golden}; review it")
    assert script == golden.read_text()


@pytest.mark.parametrize("case", CASES)
def test_a_rendered_script_passes_bash_and_shellcheck_and_fits_into_user_data(
    case: str, tmp_path: Path
) -> None:
    script = render(tmp_path, case)
    assert len(script.encode()) <= 16_384 - 1024, "no room for longer names"
    for checker in (["bash", "-n"], [str(SHELLCHECK), "-s", "bash", "-"]):
        done = subprocess.run(checker, input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("case", CASES)
def test_the_power_off_is_armed_before_anything_that_can_fail(case: str, tmp_path: Path) -> None:
    lines = [line for line in render(tmp_path, case).splitlines() if not line.startswith("#")]
    watchers = [n for n, line in enumerate(lines) if line.startswith("apart nohup")]
    assert len(watchers) == 2
    risky = re.compile(r"set -E|python3|mkdir|tar |systemctl|^export [A-Z]|exec ")
    assert all(not risky.search(line) for line in lines[: max(watchers)])
    # 12:00 UTC and seven hours, by the wall clock and by the time that passes.
    assert lines[0].startswith("end_at=1795978800 limit_s=25200 ")


NOLOGIN_S = 300
"""How long before a shutdown that is scheduled nobody but root may log in (shutdown(8))."""


def shuts_down_after(script: str, left_s: int) -> int:
    """Seconds after which a box that has `left_s` to go is told to shut down by that command."""
    lines = script.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("wall_s="))
    last = next(n for n, line in enumerate(lines) if line.startswith("if [ -d /run/systemd"))
    said = 'shutdown() { echo "$*"; }; date() { echo $((end_at - left_s)); }\n'
    text = "\n".join([f"end_at=1795978800 left_s={left_s}\n{said}", *lines[first:last]])
    done = subprocess.run(["bash", "-uc", text], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return int(done.stdout.removeprefix("-P +")) * 60


@pytest.mark.parametrize("left_s", [0, 1, 59, 60, 61, 3600, 25200])
def test_people_may_log_in_to_the_end_and_a_late_shutdown_comes_before_the_clouds_own(
    left_s: int, tmp_path: Path
) -> None:
    after = shuts_down_after(render(tmp_path, "aws"), left_s)
    assert left_s <= after - NOLOGIN_S < left_s + 60
    assert after + 60 < left_s + 600, "the default margin"


@pytest.mark.parametrize(("margin", "has_it"), [("7m", False), ("8m", True), ("30m", True)])
def test_where_the_cloud_itself_comes_sooner_there_is_no_late_shutdown(
    margin: str, has_it: bool, tmp_path: Path
) -> None:
    script = render(tmp_path, "aws", margin=margin)
    assert ("shutdown -P" in script) == has_it
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_systemd_takes_the_units_that_a_script_writes(tmp_path: Path) -> None:
    """Only the lines that print them are run, with a root of their own."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    lines = render(tmp_path, "aws").splitlines()
    first = next(n for n, line in enumerate(lines) if line.lstrip().startswith("timer() {"))
    last = next(n for n, line in enumerate(lines) if line.lstrip().startswith("systemctl daemon"))
    units = tmp_path / "units"
    units.mkdir()
    written = "\n".join(lines[first:last]).replace("/etc/systemd/system", str(units))
    env = {"PATH": os.defpath, "GPURUN_ROOT": "/opt/gpurun"}
    subprocess.run(["bash", "-euc", written], env=env, check=True)
    names = sorted(path.name for path in units.iterdir())
    assert names == [
        "gpurun-again.service",
        *(f"gpurun-end{hard}.{kind}" for hard in ("-hard", "") for kind in ("service", "timer")),
    ]
    argv = ["systemd-analyze", "verify", *map(str, sorted(units.iterdir()))]
    checked = subprocess.run(argv, capture_output=True, text=True, check=False)
    ours = [line for line in checked.stderr.splitlines() if "gpurun-" in line]
    assert (checked.returncode, ours) == (0, [])
    again = (units / "gpurun-again.service").read_text()
    assert '"[ -s /opt/gpurun/user-data ] && exec /bin/bash /opt/gpurun/user-data; ' in again
    assert "OOMPolicy=continue" in again, "or a job that runs out of memory ends the box"


def test_a_script_for_a_plain_process_names_nothing_that_could_end_the_host(
    tmp_path: Path,
) -> None:
    assert ENDS_A_HOST.search(render(tmp_path, "bwrap"))
    assert not ENDS_A_HOST.search(render(tmp_path, "process"))


def test_another_power_off_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither of"):
        render(tmp_path, "bwrap", poweroff_command="true")


@pytest.mark.parametrize(
    "evil", ["a'b", "$(touch x)", "a\nb; touch x", "../x", "`touch x`", "a b"]
)
def test_a_value_stays_one_word_of_the_shell(evil: str, tmp_path: Path) -> None:
    script = render(tmp_path, "process", bucket=evil, run_id=evil)
    tail = '; trap - EXIT ERR; printf "%s|%s" "$bucket" "$console_key"; exit'
    head, _, _ = script.partition("s3() {")
    values = "\n".join(line for line in head.splitlines() if not line.startswith("apart nohup"))
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", values + tail],
        cwd=tmp_path,
        env={"PATH": os.defpath, "GPURUN_ROOT": str(tmp_path / "root")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{evil}|runs/{evil}/boxes/l40s/console.log"
    assert not (tmp_path / "x").exists()
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, capture_output=True)


def test_a_name_that_the_template_doesnt_get_is_an_error_and_not_empty_text() -> None:
    with pytest.raises(jinja2.UndefinedError):
        _environment().from_string("{{ nothing }}").render()


def test_a_script_holds_no_credentials(tmp_path: Path) -> None:
    for case in CASES:
        assert not re.search(r"AKIA|ASIA|PRIVATE KEY", render(tmp_path, case))


def test_a_page_escapes_what_a_script_must_not() -> None:
    environment = _environment()
    assert callable(environment.autoescape)
    assert environment.autoescape("report.html.j2")
    assert not environment.autoescape("user_data.sh.j2")
