"""The reaper: its package alone ends what is over and nothing else; set up again at will."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from orchestrator.aws.instances import find_boxes
from orchestrator.aws.package import zip_of
from orchestrator.aws.policy import MOST_CHARACTERS, size_of
from orchestrator.aws.reaper_roles import function_arn
from orchestrator.aws.reaper_setup import install, uninstall
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers
from orchestrator.aws.sweep import look, sweep
from orchestrator.localcloud import policy
from orchestrator.localcloud.strict import StrictRules
from tests.fake_clock import FakeClock

from .account import ACCOUNT, OTHER_RUN, REGION, RUN, Recorder, Stack

ROLE = f"gpurun-reaper-{REGION}"
LIBRARIES = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six")
CALL = """
import sys
sys.path[:0] = sys.argv[1:3]
import json, logging
from orchestrator.aws import reaper
assert sys.argv[1] in reaper.__file__, reaper.__file__
logging.basicConfig()
print(json.dumps(reaper.handler(json.loads(sys.argv[3]), None)))
assert not {"pydantic", "rich", "typer", "httpx"} & set(sys.modules)
"""


@pytest.fixture
def endpoint(rules: StrictRules) -> Iterator[str]:
    """The account of this test, for other processes."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


@pytest.fixture
def lambda_call(tmp_path: Path, endpoint: str) -> Callable[[dict[str, str]], Any]:
    """Calls the package in a process that can import nothing else of ours, nor what we install."""
    package, libraries = tmp_path / "reaper.zip", tmp_path / "libraries"
    package.write_bytes(zip_of("orchestrator.aws.reaper"))
    libraries.mkdir()
    for name in LIBRARIES:
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin or "") if spec else Path()
        whole = origin.parent if origin.name == "__init__.py" else origin
        (libraries / whole.name).symlink_to(whole)
    names = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "reaper",
        "AWS_SECRET_ACCESS_KEY": "local",
        "NO_PROXY": "127.0.0.1",
    }

    def call(event: dict[str, str]) -> Any:
        arguments = [str(package), str(libraries), json.dumps(event)]
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", CALL, *arguments],
            env=names,
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    return call


@pytest.fixture
def one_over_one_not(build: Callable[[str], Stack], clock: FakeClock) -> None:
    """By the machine's own clock, which is the one that the package reads."""
    here = datetime.now(UTC)
    for run, age in ((RUN, 4), (OTHER_RUN, 0)):
        clock.at = here - timedelta(hours=age)
        stack = build(run)
        stack.arm(stack.launch())
    clock.at = here


def test_the_package_alone_ends_what_is_over_and_nothing_else(
    one_over_one_not: None, lambda_call: Callable[[dict[str, str]], Any], session: Session
) -> None:
    first = lambda_call({})
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == {"ended": [RUN], "going_on": [OTHER_RUN], "boxes": []}
    assert leftovers(session, RUN) == []
    assert find_boxes(session, OTHER_RUN)[0].alive
    before = leftovers(session, OTHER_RUN)
    second = lambda_call({})
    assert json.loads(second.stdout) == {"ended": [], "going_on": [OTHER_RUN], "boxes": []}
    assert leftovers(session, OTHER_RUN) == before


def test_whoever_calls_it_can_not_set_its_clock_ahead(
    one_over_one_not: None, lambda_call: Callable[[dict[str, str]], Any], session: Session
) -> None:
    ahead = lambda_call({"now": "2999-01-01T00:00:00+00:00"})
    assert json.loads(ahead.stdout)["ended"] == [RUN], ahead.stderr
    assert find_boxes(session, OTHER_RUN)[0].alive


def test_the_same_sources_make_the_same_package() -> None:
    assert zip_of("orchestrator.aws.reaper") == zip_of("orchestrator.aws.reaper")


def test_it_is_installed_as_this(session: Session) -> None:
    assert install(session)
    made = session.client("lambda").get_function(FunctionName="gpurun-reaper")["Configuration"]
    assert made["Runtime"] == "python3.12"
    assert made["Handler"] == "orchestrator.aws.reaper.handler"
    assert made["Timeout"] == 900
    assert made["Role"] == f"arn:aws:iam::{ACCOUNT}:role/gpurun-setup/{ROLE}"
    schedule = session.client("scheduler").get_schedule(Name="gpurun-reaper")
    assert schedule["ScheduleExpression"] == "rate(5 minutes)"
    assert schedule["Target"]["Arn"] == function_arn(session) == made["FunctionArn"]
    assert schedule["Target"]["RoleArn"].endswith(f"{ROLE}-call")
    (log,) = session.client("logs").describe_log_groups()["logGroups"]
    assert (log["logGroupName"], log["retentionInDays"]) == ("/aws/lambda/gpurun-reaper", 14)


def test_a_second_time_changes_nothing_and_removing_leaves_nothing(
    session: Session, record: Callable[[Any, str], Recorder]
) -> None:
    install(session)
    calls = [
        record("lambda", "CreateFunction"),
        record("lambda", "UpdateFunctionCode"),
        record("lambda", "UpdateFunctionConfiguration"),
        record("scheduler", "CreateSchedule"),
        record("scheduler", "UpdateSchedule"),
    ]
    assert not install(session)
    assert [call for recorder in calls for call in recorder.calls] == []
    for _ in range(2):
        uninstall(session)
    assert session.client("lambda").list_functions()["Functions"] == []
    assert session.client("scheduler").list_schedules()["Schedules"] == []
    assert session.client("iam").list_roles(PathPrefix="/gpurun-setup/")["Roles"] == []
    assert session.client("logs").describe_log_groups()["logGroups"] == []


def test_one_that_was_changed_is_put_right(session: Session) -> None:
    install(session)
    client = session.client("lambda")
    client.update_function_configuration(FunctionName="gpurun-reaper", Timeout=3)
    assert install(session)
    found = client.get_function(FunctionName="gpurun-reaper")["Configuration"]
    assert found["Timeout"] == 900


def test_roles_that_nobody_knows_yet_are_waited_for(
    session: Session, rules: StrictRules, clock: FakeClock
) -> None:
    rules.role_delay_s = 15
    assert install(session)
    assert 15 <= clock.waited_s < 60


def test_a_sweep_takes_the_reaper_for_no_run(session: Session, clock: FakeClock) -> None:
    install(session)
    clock.at += timedelta(days=400)
    assert look(session, [REGION]).by_region == {REGION: []}
    swept = sweep(session, clock.now(), [REGION])
    assert (swept.ended, swept.left) == ((), ())
    assert not install(session)


def _documents(session: Session, name: str = ROLE) -> list[dict[str, Any]]:
    iam = session.client("iam")
    names = iam.list_role_policies(RoleName=name)["PolicyNames"]
    found: list[Any] = [
        iam.get_role_policy(RoleName=name, PolicyName=each)["PolicyDocument"] for each in names
    ]
    return found


def allowed(documents: list[dict[str, Any]], action: str, resource: str, **tags: str) -> bool:
    context = {f"aws:ResourceTag/{key.replace('_', ':')}": tags[key] for key in tags}
    return policy.allows(documents, action, resource, context)


def test_its_role_may_end_what_carries_a_runs_tag_and_nothing_else(session: Session) -> None:
    install(session)
    documents = _documents(session)
    ec2 = f"arn:aws:ec2:{REGION}:{ACCOUNT}"
    for action, kind in (
        ("ec2:TerminateInstances", "instance/i-1"),
        ("ec2:DeleteVolume", "volume/vol-1"),
        ("ec2:DeleteVpc", "vpc/vpc-1"),
        ("ec2:DeleteSubnet", "subnet/subnet-1"),
        ("ec2:DeleteNetworkInterface", "network-interface/eni-1"),
        ("ec2:ModifyInstanceAttribute", "instance/i-1"),
    ):
        assert allowed(documents, action, f"{ec2}:{kind}", gpurun_run=RUN), action
        assert not allowed(documents, action, f"{ec2}:{kind}"), action
        assert not allowed(documents, action, f"{ec2}:{kind}", Name=RUN), action
    for action in ("ec2:RunInstances", "ec2:CreateTags", "ec2:StopInstances", "s3:DeleteObject"):
        assert not allowed(documents, action, f"{ec2}:instance/i-1", gpurun_run=RUN), action


def test_its_role_can_not_reach_itself_nor_what_is_not_ours(session: Session) -> None:
    install(session)
    documents = _documents(session)
    schedules = f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default"
    iam = f"arn:aws:iam::{ACCOUNT}:role"
    assert allowed(documents, "scheduler:DeleteSchedule", f"{schedules}/gpurun-{RUN}-l4")
    assert not allowed(documents, "scheduler:DeleteSchedule", f"{schedules}/gpurun-reaper")
    assert not allowed(documents, "scheduler:DeleteSchedule", f"{schedules}/payroll")
    assert allowed(documents, "iam:DeleteRole", f"{iam}/gpurun/gpurun-{RUN}-kill")
    for name in (f"gpurun-setup/{ROLE}", "admin", "payroll/gpurun-box"):
        assert not allowed(documents, "iam:DeleteRole", f"{iam}/{name}")
    for action in ("iam:PutRolePolicy", "iam:PassRole", "iam:AttachRolePolicy"):
        assert not allowed(documents, action, f"{iam}/gpurun/gpurun-{RUN}-kill")


def test_its_policies_fit_into_a_role(session: Session) -> None:
    """IAM takes 10,240 characters of a role's own policies, blanks not counted."""
    install(session)
    sizes = [size_of(document) for document in _documents(session)]
    assert sum(sizes) < 10_240
    assert max(sizes) <= MOST_CHARACTERS


def test_who_starts_it_may_do_nothing_else(session: Session) -> None:
    install(session)
    documents = _documents(session, f"{ROLE}-call")
    assert allowed(documents, "lambda:InvokeFunction", function_arn(session))
    assert not allowed(documents, "lambda:InvokeFunction", f"{function_arn(session)}-2")
    assert not allowed(documents, "ec2:TerminateInstances", "*", gpurun_run=RUN)


def test_everything_that_a_sweep_calls_is_allowed(
    build: Callable[[str], Stack], session: Session, clock: FakeClock
) -> None:
    install(session)
    documents, asked = _documents(session), set[str]()
    stack = build(RUN)
    stack.arm(stack.launch())
    clock.at += timedelta(hours=4)
    prefixes = {"scheduler": "scheduler", "ec2": "ec2", "iam": "iam", "sqs": "sqs", "ssm": "ssm"}

    def note(model: Any, **_: Any) -> None:
        asked.add(f"{model.service_model.endpoint_prefix}:{model.name}")

    for service in prefixes:
        each: Any = session.client(service)  # type: ignore[call-overload]
        each.meta.events.register("before-call", note)
    try:
        assert sweep(session, clock.now(), [REGION]).ended == (RUN,)
    finally:
        for service in prefixes:
            each = session.client(service)  # type: ignore[call-overload]
            each.meta.events.unregister("before-call", note)
    named = {
        action for document in documents for s in document["Statement"] for action in _many(s)
    }
    assert len(asked) > 30
    assert asked - named == set()


def _many(statement: dict[str, Any]) -> list[str]:
    actions = statement["Action"]
    return [actions] if isinstance(actions, str) else actions
