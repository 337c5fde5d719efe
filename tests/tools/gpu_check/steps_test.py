"""A step that fails or hangs is named, ended, and stops nobody."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.gpu_check import steps, verdicts
from tools.gpu_check.steps import Deadline, Step, run_step
from tools.gpu_check.told import Told
from tools.gpu_check.verdicts import Check, Verdict, exit_status

ROOT = Path(__file__).parents[3]

TELL = (
    "from pathlib import Path; from tools.gpu_check.told import Told; tell = Told(Path({told!r}));"
)


def step(folder: Path, code: str, *owes: str, limit_s: float = 30.0) -> Step:
    told = TELL.format(told=str(folder / "one.jsonl"))
    command = [sys.executable, "-c", told + code]
    return Step("one", command, limit_s, owes, environment={"PYTHONPATH": str(ROOT)})


def judged(folder: Path, code: str, *owes: str, limit_s: float = 30.0) -> list[Check]:
    return run_step(step(folder, code, *owes, limit_s=limit_s), folder, Deadline.after(60))


def test_what_a_step_told_before_it_failed_counts_and_the_rest_has_failed(tmp_path: Path) -> None:
    code = "tell('first', 'seen', True); raise ValueError('the second is broken')"
    first, second = judged(tmp_path, code, "first", "second")
    assert first == Check("first", "seen", "PASS")
    assert (second.name, second.verdict) == ("second", "FAIL")
    assert second.seen.startswith("exit status 1: ValueError: the second is broken (")
    assert judged(tmp_path, "tell('third', '', True)", "third") == [Check("third", "", "PASS")]


def test_a_step_that_hangs_is_ended_at_its_limit_even_if_it_ignores_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "GRACE_S", 0.2)
    code = (
        "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "tell('first', str(os.getpid()), True); print('stuck here', flush=True); signal.pause()"
    )
    first, second = judged(tmp_path, code, "first", "second", limit_s=3.0)
    assert first.verdict == "PASS"
    assert (second.verdict, "ended after its 3 s, at: stuck here" in second.seen) == ("FAIL", True)
    assert not Path("/proc", first.seen).exists()


@pytest.mark.parametrize("end", ["signal.pause()", "sys.exit('broken')", "pass"])
def test_what_a_step_started_ends_with_it_however_it_ended(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "GRACE_S", 0.2)
    child = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    code = (
        "import signal, subprocess, sys;"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}]);"
        f"tell('child', str(child.pid), True); {end}"
    )
    pid = judged(tmp_path, code, "child", limit_s=2.0)[0].seen
    assert gone(int(pid))


def gone(pid: int) -> bool:
    """Ended within ten seconds: not there, or its exit status not asked for yet."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            stat = Path("/proc", str(pid), "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if stat.rpartition(")")[2].split()[0] in "ZX":
            return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_check_that_is_ended_from_outside_ends_its_step(
    tmp_path: Path, number: signal.Signals
) -> None:
    step = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    code = (
        "import sys; from pathlib import Path;"
        "from tools.gpu_check.__main__ import end_on_signals;"
        "from tools.gpu_check.steps import Deadline, Step, run_step; end_on_signals();"
        f"step = Step('one', [sys.executable, '-c', {step!r}], 60.0, ['only']);"
        f"run_step(step, Path({str(tmp_path)!r}), Deadline.after(60))"
    )
    check = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    log = tmp_path / "one.log"
    while not (log.is_file() and log.read_text().endswith("\n")):
        assert check.poll() is None
        assert time.monotonic() < deadline
    check.send_signal(number)
    assert check.wait(30) != 0
    assert gone(int(log.read_text()))


def test_a_step_that_hangs_is_asked_first(tmp_path: Path) -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit('was asked'));"
        "print('waiting', flush=True); signal.pause()"
    )
    (check,) = judged(tmp_path, code, "only", limit_s=3.0)
    assert "at: waiting (" in check.seen
    assert (tmp_path / "one.log").read_text() == "waiting\nwas asked\n"


@pytest.mark.parametrize(
    ("code", "why"),
    [("pass", "told nothing of it"), ("tell('only', 'wrong', False)", "wrong")],
)
def test_a_step_that_ends_well_still_owes_its_checks(tmp_path: Path, code: str, why: str) -> None:
    (check,) = judged(tmp_path, code, "only")
    assert (check.verdict, why in check.seen) == ("FAIL", True)


def test_a_program_that_isnt_there_fails_only_its_own_step(tmp_path: Path) -> None:
    missing = Step("one", [str(tmp_path / "python")], 30.0, ["only"])
    (check,) = run_step(missing, tmp_path, Deadline.after(60))
    assert (check.verdict, check.seen.startswith("can't be started")) == ("FAIL", True)


def test_nothing_is_begun_that_the_total_deadline_would_cut_at_once(tmp_path: Path) -> None:
    begins = step(tmp_path, f"open({str(tmp_path / 'begun')!r}, 'w')", "only")
    (check,) = run_step(begins, tmp_path, Deadline.after(steps.GRACE_S + 1))
    assert (check.verdict, check.seen.startswith("no time was left")) == ("FAIL", True)
    assert not (tmp_path / "begun").exists()


def test_a_check_whose_line_was_cut_short_wasnt_told(tmp_path: Path) -> None:
    told = Told(tmp_path / "told.jsonl", "here: ")
    told("whole", "", True)
    with (tmp_path / "told.jsonl").open("a") as file:
        file.write('{"name": "cu')
    assert told.checks() == [Check("here: whole", "", "PASS")]


@pytest.mark.parametrize(
    ("seen", "status", "rehearsed"),
    [
        (["PASS", "PASS"], verdicts.ALL_PASSED, verdicts.ALL_PASSED),
        (["PASS", "SKIPPED"], verdicts.INCOMPLETE, verdicts.ALL_PASSED),
        (["PASS", "SKIPPED", "FAIL"], verdicts.FAILED, verdicts.FAILED),
        (["SKIPPED"], verdicts.FAILED, verdicts.FAILED),
        ([], verdicts.FAILED, verdicts.FAILED),
    ],
)
def test_the_exit_status_is_0_only_when_all_passed(
    seen: list[Verdict], status: int, rehearsed: int
) -> None:
    checks = [Check("a check", "", verdict) for verdict in seen]
    assert exit_status(checks, rehearsal=False) == status
    assert exit_status(checks, rehearsal=True) == rehearsed
