"""Setting the reaper up over what an earlier set-up left, or while AWS is still busy with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.aws.reaper_setup import install
from orchestrator.aws.session import Session
from orchestrator.errors import ApiError
from tests.fake_clock import FakeClock

from .account import ACCOUNT, REGION, answer

ROLE = f"gpurun-reaper-{REGION}"


def trust_of(session: Session, role: str) -> Any:
    found: Any = session.client("iam").get_role(RoleName=role)["Role"]
    (statement,) = found["AssumeRolePolicyDocument"]["Statement"]
    return statement


def test_roles_of_before_get_who_may_take_them_now(session: Session) -> None:
    for name in (ROLE, f"{ROLE}-call"):
        session.client("iam").create_role(
            RoleName=name, Path="/gpurun-setup/", AssumeRolePolicyDocument=json.dumps({})
        )
    install(session)
    assert trust_of(session, ROLE)["Principal"] == {"Service": "lambda.amazonaws.com"}
    caller = trust_of(session, f"{ROLE}-call")
    assert caller["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert caller["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}


def test_nothing_is_asked_of_lambda_that_it_may_not_say_when_it_takes_its_role(
    session: Session,
) -> None:
    install(session)
    assert "Condition" not in trust_of(session, ROLE)


@pytest.mark.parametrize(
    "said, is_waited_for",
    [
        ("An update is in progress for resource: gpurun-reaper", True),
        ("The function is currently in the following state: Pending", True),
        ("Function already exist: gpurun-reaper", False),
    ],
)
def test_a_function_that_is_still_being_made_is_waited_for(
    session: Session, clock: FakeClock, said: str, *, is_waited_for: bool
) -> None:
    install(session)
    session.client("lambda").update_function_configuration(FunctionName="gpurun-reaper", Timeout=3)
    begun = clock.waited_s
    busy = {"Error": {"Code": "ResourceConflictException", "Message": said}}
    conflict = answer(session, "UpdateFunctionConfiguration", busy, 409, service="lambda")
    with conflict, pytest.raises(ApiError):
        install(session)
    assert (clock.waited_s > begun) == is_waited_for
    assert install(session)
