"""What AWS's answers mean to a person: one class each, and nothing of botocore's gets out."""

from __future__ import annotations

import pytest
from botocore import exceptions as sdk

from orchestrator.aws.codes import CODES
from orchestrator.aws.refusals import (
    Refusal,
    boundary,
    classify,
    is_missing,
    is_not_known_yet,
    is_unanswered,
)
from orchestrator.aws.tags import RunTags, as_map, named, parse_time
from orchestrator.errors import (
    ApiError,
    CloudError,
    CredentialsError,
    GpurunError,
    QuotaError,
    RunNotFound,
)
from tests.fake_clock import FakeClock

from .account import RUN


def refusal(
    code: str, status: int = 400, call: str = "SomeCall", why: str = "because"
) -> sdk.ClientError:
    answer = {
        "Error": {"Code": code, "Message": why},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return sdk.ClientError(answer, call)  # type: ignore[arg-type]


PROFILE = (
    "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
)
ROLE = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."


@pytest.mark.parametrize(
    "error,expected",
    [
        (refusal("InsufficientInstanceCapacity", 500), Refusal.CAPACITY),
        (refusal("Unsupported"), Refusal.CAPACITY),
        (refusal("SpotMaxPriceTooLow"), Refusal.CAPACITY),
        (refusal("VcpuLimitExceeded"), Refusal.QUOTA),
        (refusal("MaxSpotInstanceCountExceeded"), Refusal.QUOTA),
        (refusal("VpcLimitExceeded"), Refusal.QUOTA),
        (refusal("ExpiredToken"), Refusal.AUTH),
        (refusal("RequestExpired"), Refusal.AUTH),
        (refusal("RequestTimeTooSkewed", 403), Refusal.AUTH),
        (refusal("AuthFailure", 401), Refusal.AUTH),
        (sdk.NoCredentialsError(), Refusal.AUTH),
        (refusal("UnauthorizedOperation", 403), Refusal.DENIED),
        (refusal("AccessDenied", 403), Refusal.DENIED),
        (refusal("RequestLimitExceeded", 503), Refusal.THROTTLED),
        (refusal("SlowDown", 503), Refusal.THROTTLED),
        (refusal("SomethingNew", 429), Refusal.THROTTLED),
        (refusal("InternalError", 500), Refusal.UNANSWERED),
        (refusal("SomethingNew", 502), Refusal.UNANSWERED),
        (sdk.ReadTimeoutError(endpoint_url="https://ec2"), Refusal.UNANSWERED),
        (sdk.ConnectionClosedError(endpoint_url="https://ec2"), Refusal.UNANSWERED),
        (refusal("InvalidVpcID.NotFound"), Refusal.MISSING),
        (refusal("NoSuchKey", 404), Refusal.MISSING),
        (refusal("InvalidGroup.NotFound"), Refusal.MISSING),
        (refusal("InvalidGroup.NotFound", call="RunInstances"), Refusal.NOT_KNOWN_YET),
        (refusal("NoSuchEntity", call="RunInstances"), Refusal.NOT_KNOWN_YET),
        (refusal("InvalidAMIID.NotFound", call="RunInstances"), Refusal.MISSING),
        (
            refusal("InvalidParameterValue", call="RunInstances", why=PROFILE),
            Refusal.NOT_KNOWN_YET,
        ),
        (refusal("InvalidParameterValue", call="RunInstances"), Refusal.MALFORMED),
        (refusal("InvalidParameterValue", why=PROFILE), Refusal.MALFORMED),
        (refusal("ValidationException", why=ROLE), Refusal.NOT_KNOWN_YET),
        (refusal("ValidationException"), Refusal.MALFORMED),
        (refusal("InvalidAMIID.Malformed"), Refusal.MALFORMED),
        (sdk.ParamValidationError(report="x"), Refusal.MALFORMED),
        (refusal("DependencyViolation"), Refusal.IN_USE),
        (refusal("DeleteConflict", 409), Refusal.IN_USE),
        (refusal("IdempotentParameterMismatch"), Refusal.USED_TOKEN),
        (refusal("IdempotentInstanceTerminated"), Refusal.ENDED_TOKEN),
        (refusal("OperationNotPermitted"), Refusal.PROTECTED),
        (refusal("SomethingNew"), Refusal.OTHER),
        (ValueError("not AWS at all"), Refusal.OTHER),
    ],
    ids=lambda value: str(value)[:70],
)
def test_a_refusal_means_one_thing(error: Exception, expected: Refusal) -> None:
    assert classify(error) is expected


def test_no_code_means_two_things() -> None:
    listed = [code for codes in CODES.values() for code in codes]
    assert len(listed) == len(set(listed))


def test_what_is_not_known_yet_is_asked_for_again_and_never_called_gone() -> None:
    late = refusal("InvalidParameterValue", call="RunInstances", why=PROFILE)
    assert is_not_known_yet(late)
    assert not is_missing(late)


def test_a_clock_that_is_wrong_is_named_as_the_cure() -> None:
    with pytest.raises(CredentialsError) as told, boundary():
        raise refusal("RequestTimeTooSkewed", 403)
    assert "clock" in told.value.hint


@pytest.mark.parametrize(
    "error,expected",
    [
        (sdk.NoCredentialsError(), CredentialsError),
        (sdk.ProfileNotFound(profile="x"), CredentialsError),
        (refusal("ExpiredToken"), CredentialsError),
        (refusal("AuthFailure"), CredentialsError),
        (refusal("UnauthorizedOperation", 403), ApiError),
        (refusal("VpcLimitExceeded"), QuotaError),
        (refusal("InternalError", 500), ApiError),
        (sdk.ReadTimeoutError(endpoint_url="https://ec2.us-east-1.amazonaws.com"), ApiError),
        (sdk.EndpointConnectionError(endpoint_url="https://ec2.amazonaws.com"), ApiError),
        (sdk.EndpointConnectionError(endpoint_url="http://127.0.0.1:5000"), CloudError),
    ],
)
def test_every_failure_has_one_class(error: Exception, expected: type[GpurunError]) -> None:
    with pytest.raises(GpurunError) as told, boundary():
        raise error
    assert type(told.value) is expected
    assert told.value.hint
    assert told.value.__cause__ is error


def test_the_operation_the_code_and_the_reason_are_told() -> None:
    with pytest.raises(ApiError, match=r"SomeCall: Odd: because"), boundary():
        raise refusal("Odd")


@pytest.mark.parametrize("code", ["InvalidVpcID.NotFound", "NoSuchEntity", "404"])
def test_absent_is_absent(code: str) -> None:
    assert is_missing(refusal(code))


@pytest.mark.parametrize("code", ["ExpiredToken", "AccessDenied", "403", "InvalidVpcID.Malformed"])
def test_what_may_not_be_seen_is_not_absent(code: str) -> None:
    assert not is_missing(refusal(code, 403))


def test_no_capacity_is_an_answer_although_it_looks_like_a_failure_of_the_server() -> None:
    assert not is_unanswered(refusal("InsufficientInstanceCapacity", 500))
    assert is_unanswered(refusal("InternalError", 500))
    assert is_unanswered(refusal("RequestLimitExceeded", 503))
    assert not is_unanswered(refusal("InvalidParameterValue"))


def test_names_fit_where_the_longest_run_and_box_go() -> None:
    run = "a" * 16 + "-261129-190000-ab2c"
    assert len(named(run, "b" * 16)) <= 64
    assert len(named(run, "kill")) <= 64


def test_tags_hold_what_aws_takes(clock: FakeClock) -> None:
    tags = RunTags(RUN, "Ann O'Neill <ann@x.org>\n", clock.now(), "bucket")
    found = as_map(tags.as_list("box", "n", price_per_hour="1.5"))
    assert found["gpurun:owner"] == "Ann O-Neill -ann@x.org--"
    assert found["gpurun:price-per-hour"] == "1.5"
    assert parse_time(found["gpurun:expires-at"]) == clock.now()


@pytest.mark.parametrize("wrong", [None, "", "soon", "2026-11-29T19:00:00"])
def test_a_time_without_a_zone_is_no_time(wrong: str | None) -> None:
    assert parse_time(wrong) is None


@pytest.mark.parametrize("wrong", ["*", "Demo", "demo_1", "-demo", "a" * 49, "demo\n"])
def test_tags_of_what_is_no_run_can_not_be_made(wrong: str, clock: FakeClock) -> None:
    with pytest.raises(RunNotFound):
        RunTags(wrong, "ann", clock.now(), "bucket")
