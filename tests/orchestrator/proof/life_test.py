"""A proof on an account where no box ever ends by itself: it says so, and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.aws import evidence, network, schedules, stack
from orchestrator.aws.session import Session
from orchestrator.errors import ApiError, CapacityError, ProofFailed
from orchestrator.proof import command
from orchestrator.proof.checks import Check, ProofReport, Verdict
from orchestrator.proof.earlier import victim_of
from orchestrator.proof.life import Proof
from tests.fake_clock import FakeClock

ProofBy = Callable[[str], Proof]


def verdicts(report: ProofReport) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in report.checks}


def all_left(session: Session) -> list[str]:
    return [f"{item.kind} {item.id}" for item in stack.leftovers(session)]


def test_enforcers_that_end_nothing_fail_and_what_calls_end_still_passes(
    proof_by: ProofBy, session: Session
) -> None:
    report = proof_by("me@here").prove()
    found = verdicts(report)
    for box in ("agent", "timer", "schedule", "guard", "halted"):
        assert found[f"ended: {box}"] is Verdict.FAIL
    for name in ("ended: controller", "ended: sweep", "swept whole", "role spares other runs"):
        assert found[name] is Verdict.PASS
    for name in ("pulled and verified", "saved before power-off", "loss bound", "box: S3 rights"):
        assert found[name] is Verdict.FAIL
    for name in (
        *("power-off terminates", "metadata needs a token", "disk is encrypted"),
        *("disk and interface go along", "tagged: instance", "tagged: volume"),
        *("tagged: network-interface", "bucket is private", "bucket's owner is checked", "quota"),
        *("profile is usable", "schedule's role is accepted", "nothing is left", "bill"),
    ):
        assert found[name] is Verdict.PASS, name
    assert all_left(session) == []
    with pytest.raises(ProofFailed, match="did not end it: still running") as failed:
        command.raise_unless_proved(report)
    assert failed.value.exit_code == 26


def test_a_proof_of_which_every_check_passed_raises_nothing() -> None:
    good = Check(name="one", verdict=Verdict.PASS)
    report = ProofReport(
        run_id="killproof-261129-190000-ab2c",
        cloud="local",
        region="us-east-1",
        account="123456789012",
        checks=(good, Check(name="two", verdict=Verdict.SKIP)),
        left=(),
        total_usd=0,
        worst_case_usd=1,
        cap_usd=1,
        seconds=1.0,
    )
    command.raise_unless_proved(report)
    assert "2 of 2 checks" in command.summary(report)


@pytest.mark.parametrize("wrong", [KeyboardInterrupt(), ApiError("no schedule")])
def test_an_interrupted_proof_leaves_nothing(
    proof_by: ProofBy, session: Session, monkeypatch: pytest.MonkeyPatch, wrong: BaseException
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise wrong

    monkeypatch.setattr(schedules, "ensure_kill", refuse)
    with pytest.raises(type(wrong)):
        proof_by("me@here").prove()
    assert all_left(session) == []


def test_a_wrong_answer_read_back_is_a_failed_check(
    proof_by: ProofBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "_shutdown", lambda *_: "stop")
    monkeypatch.setattr(evidence, "is_private", lambda *_: False)
    found = verdicts(proof_by("me@here").prove())
    assert found["power-off terminates"] is Verdict.FAIL
    assert found["bucket is private"] is Verdict.FAIL


def crash(proof: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die once everything is launched: nothing is torn down, as by SIGKILL."""
    with monkeypatch.context() as patch:
        patch.setattr(Proof, "_watch", lambda *_: (_ for _ in ()).throw(SystemExit))
        patch.setattr(Proof, "_tear_down", lambda _: None)
        with pytest.raises(SystemExit):
            proof.prove()


def test_a_second_start_ends_what_a_dead_proof_of_the_same_person_left(
    proof_by: ProofBy, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = proof_by("me@here")
    crash(dead, monkeypatch)
    assert all_left(session)
    report = proof_by("me@here").prove()
    told = [check.detail for check in report.checks if check.name == "an earlier proof"]
    assert sorted(told) == sorted(
        f"{run} had died; all of it is gone" for run in (dead.run_id, victim_of(dead.run_id))
    )
    assert all_left(session) == []


def test_the_proof_of_somebody_else_is_left_alone_until_it_is_past_its_expiry(
    proof_by: ProofBy, session: Session, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = proof_by("her@there")
    crash(theirs, monkeypatch)

    def stop(*_: object, **__: object) -> None:
        raise CapacityError("full")

    with monkeypatch.context() as patch:
        patch.setattr(network, "ensure_network", stop)
        with pytest.raises(CapacityError):
            proof_by("me@here").prove()
        assert {item.run for item in stack.leftovers(session)} >= {theirs.run_id}
        clock.sleep(1300)
        with pytest.raises(CapacityError):
            proof_by("me@here").prove()
    assert all_left(session) == []
