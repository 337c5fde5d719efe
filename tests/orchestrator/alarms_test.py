"""A switch of the cloud that failed is told by `status`, the watch and `down`, and kept after."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from threading import RLock

import pytest

from orchestrator.aws.dead_letters import queue_arn
from orchestrator.aws.session import Session
from orchestrator.console.live import Progress
from orchestrator.console.terminal import make_console
from orchestrator.console.views import result_view
from orchestrator.errors import TeardownError
from orchestrator.localcloud.firing import Firing, clients_of
from orchestrator.run import EventKind
from orchestrator.runner import Runner

from .aws.account import refuse
from .runner_test import Clock, begun, clock, rules, runner, session

__all__ = ["begun", "clock", "rules", "runner", "session"]


def shown(runner: Runner) -> str:
    page = io.StringIO()
    make_console(file=page).print(result_view(runner.look()), soft_wrap=True)
    return page.getvalue()


@pytest.fixture
def failed(runner: Runner, session: Session, clock: Clock) -> Runner:
    """Launched and armed, but the switches' role may end nothing any more, only say so."""
    runner.launch_all()
    run_id = runner.record.run_id
    told = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": queue_arn(session, run_id)}
    session.client("iam").put_role_policy(
        RoleName=f"gpurun-{run_id}-kill",
        PolicyName="gpurun",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [told]}),
    )
    clock.at = runner.record.expires_at + timedelta(days=1, minutes=1)
    assert Firing(clients_of(None), RLock(), clock.now).fire_due() == []
    return runner


def test_a_run_whose_switches_work_has_no_alarm(runner: Runner, clock: Clock) -> None:
    runner.launch_all()
    assert runner.look().alarms == ()
    assert "ALARM" not in shown(runner)


def test_status_tells_that_a_switch_failed_why_and_what_to_type(failed: Runner) -> None:
    box, run_id = failed.record.plan.boxes[0].name, failed.record.run_id
    assert f"ALARM the cloud's own switch for {box} failed: arn:aws:iam::" in shown(failed)
    assert f"end it: gpurun down {run_id}" in shown(failed)
    assert not [e for e in failed.log.read() if e.kind is EventKind.SWITCH_FAILED]


def test_the_watch_says_it_once_and_writes_it_down(failed: Runner, clock: Clock) -> None:
    page = io.StringIO()
    with Progress(make_console(file=page)) as progress:
        failed.on_progress, failed.on_step = progress.show, progress.step
        failed.drive()
    assert page.getvalue().count(f"ALARM the cloud's own switch for {_first(failed)} failed") <= 2
    assert "own switch" in page.getvalue()
    (event, *_) = [e for e in failed.log.read() if e.kind is EventKind.SWITCH_FAILED]
    assert event.box == _first(failed)


def test_down_deletes_the_letters_and_status_still_tells(failed: Runner) -> None:
    failed.finish()
    assert "the box has ended" in shown(failed)
    failed.finish()
    kinds = [e.kind for e in failed.log.read()]
    switches = 2 * len(failed.record.plan.boxes)  # each has its guard and its own
    assert kinds.count(EventKind.SWITCH_FAILED) == switches


def test_a_box_that_outlives_its_switch_is_an_alarm_though_no_letter_came(
    runner: Runner, clock: Clock
) -> None:
    runner.launch_all()
    clock.at = runner.record.plan.box(_first(runner)).cloud_at + timedelta(minutes=7)
    assert f"{_first(runner)} still runs 7 min after the cloud's own switch" in shown(runner)


def test_an_overdue_box_that_may_not_be_ended_is_an_alarm_and_never_recorded_as_ended(
    runner: Runner, session: Session, clock: Clock
) -> None:
    runner.launch_all()
    clock.at = runner.record.expires_at + timedelta(minutes=5)
    with (
        refuse(session, "TerminateInstances", "UnauthorizedOperation"),
        pytest.raises(TeardownError, match="may still run and bill; the cloud's switch ends it"),
    ):
        runner.drive()
    kinds = {event.kind for event in runner.log.read()}
    assert not kinds & {EventKind.ENDED, EventKind.SETTLED, EventKind.CLEAN}


def test_letters_that_can_not_be_read_keep_no_run_from_ending(
    failed: Runner, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed.session.client("sqs").meta.events.register(
        "before-parameter-build.sqs.GetQueueAttributes", _refused
    )
    assert "the dead letters can't be read" in shown(failed)
    failed.session.client("sqs").meta.events.unregister(
        "before-parameter-build.sqs.GetQueueAttributes", _refused
    )


def _refused(**_: object) -> None:
    from botocore.exceptions import ClientError  # noqa: PLC0415

    raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetQueueAttributes")


def _first(runner: Runner) -> str:
    return runner.record.plan.boxes[0].name
