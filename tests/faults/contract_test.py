"""The model does what strict moto does, and a real account where one is given: one test a promise.

Here the whole of `orchestrator.aws` is driven through a session on each; what EC2, IAM, S3 and the
others say call by call is in cloud/*_contract_test.py.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

import orchestrator
from orchestrator.aws import keys, network, quotas, schedules, zones
from orchestrator.aws.bucket import Bucket, ensure_bucket, find_run_bucket, result_buckets
from orchestrator.aws.instances import find_boxes, terminate, wait_terminated
from orchestrator.aws.stack import leftovers, teardown
from orchestrator.aws.sweep import sweep
from orchestrator.errors import ApiError, CapacityError, LaunchError, QuotaError
from tests.faults.cloud.building import TYPE, BuiltRun, build_run
from tests.faults.cloud.kit import (
    KEY,
    OTHER_RUN,
    RUN,
    SERVICES,
    ZONES,
    TestAccount,
    nowhere,
    open_account,
    refusal,
)
from tests.faults.cloud.model import operations_of

EVERYTHING = {
    "queue",
    "instance",
    "instance-profile",
    "internet-gateway",
    "key-pair",
    "network-interface",
    "role",
    "route-table",
    "schedule",
    "security-group",
    "subnet",
    "volume",
    "vpc",
    "vpc-endpoint",
}


@pytest.fixture
def run(account: TestAccount) -> BuiltRun:
    return build(account)


def build(account: TestAccount, run_id: str = RUN) -> BuiltRun:
    here = tuple(z.replace("us-east-1", account.session.region) for z in ZONES)
    return build_run(account.session, account.tags(run_id), here)


def test_building_again_changes_nothing(account: TestAccount, run: BuiltRun) -> None:
    assert build(account).net == run.net
    assert run.net.subnets.keys() == set(ZONES)
    found = leftovers(account.session, RUN)
    before = {"instance", "volume", "network-interface", "schedule", "queue"}
    assert {item.kind for item in found} == EVERYTHING - before
    assert len(found) == len({item.id for item in found}) + 1  # box role and profile share a name


def test_a_box_comes_up_once_however_often_it_is_asked_for(run: BuiltRun) -> None:
    box = run.armed()
    assert run.armed().instance_id == box.instance_id
    (seen,) = find_boxes(run.session, RUN)
    assert (seen.box, seen.instance_type, seen.attempt) == ("l4", TYPE, 1)
    assert seen.ip
    assert seen.zone in run.net.subnets
    assert seen.ended_at is None


def test_a_run_is_seen_whole_and_then_not_at_all(account: TestAccount, run: BuiltRun) -> None:
    run.armed()
    items = leftovers(account.session, RUN)
    assert {item.kind for item in items} == EVERYTHING
    assert {item.run for item in items} == {RUN}
    assert teardown(account.session, RUN, account.now()) == []
    assert leftovers(account.session, RUN) == []
    assert teardown(account.session, RUN, account.now()) == []
    (box,) = find_boxes(account.session, RUN)
    assert (box.state, box.reason) == ("terminated", "Client.UserInitiatedShutdown")
    assert box.ended_at is not None


def test_a_teardown_waits_for_what_takes_its_time(account: TestAccount, run: BuiltRun) -> None:
    account.turn(boot_s=40, shutdown_s=90, linger_s=60, endpoint_linger_s=20, queue_linger_s=50)
    account.turn(profile_delay_s=9, role_delay_s=9)
    run.armed()
    assert teardown(account.session, RUN, account.now()) == []
    assert account.clock is not None
    assert 90 + 60 <= account.clock.waited_s < 400


def test_a_run_beside_it_is_not_touched(account: TestAccount, run: BuiltRun) -> None:
    account.turn()
    run.armed()
    other = build(account, OTHER_RUN)
    other.armed()
    before = leftovers(account.session, OTHER_RUN)
    assert teardown(account.session, RUN, account.now()) == []
    assert leftovers(account.session, OTHER_RUN) == before


def test_a_sweep_ends_what_has_expired(account: TestAccount, run: BuiltRun) -> None:
    account.turn()
    run.armed()
    account.pass_time(7200)
    build(account, OTHER_RUN).armed()
    account.pass_time(2 * 3600)
    swept = sweep(account.session, account.now(), [account.session.region])
    assert (swept.ended, swept.going_on, swept.left) == ((RUN,), (OTHER_RUN,), ())
    assert leftovers(account.session, RUN) == []


def test_a_zone_without_room_sends_the_box_to_the_next(
    account: TestAccount, run: BuiltRun
) -> None:
    account.turn(capacity={(TYPE, zone): 0 for zone in ZONES[:2]})
    assert run.launch().zone == ZONES[2]


def test_no_room_anywhere_and_no_quota_are_told_apart(account: TestAccount, run: BuiltRun) -> None:
    account.turn(capacity={(TYPE, zone): 0 for zone in ZONES})
    with pytest.raises(CapacityError):
        run.launch()
    account.turn(capacity={}, vcpu_limits={"L-DB2E81BA": 2})
    with pytest.raises(QuotaError):
        run.launch()
    with pytest.raises(QuotaError):
        run.launch(spot=True)


def test_an_attempt_that_has_ended_is_not_launched_again(
    account: TestAccount, run: BuiltRun
) -> None:
    box = run.launch()
    terminate(account.session, [box.instance_id, "i-0123456789abcdef0"])
    assert wait_terminated(account.session, [box.instance_id], 600) == ()
    with pytest.raises(LaunchError):
        run.launch()
    assert run.launch(attempt=2).instance_id != box.instance_id


def test_a_new_profile_and_a_new_role_are_waited_for(account: TestAccount) -> None:
    account.turn(profile_delay_s=12, role_delay_s=15)
    box = build(account).armed()
    assert account.clock is not None
    assert 15 <= account.clock.waited_s < 30
    assert len(find_boxes(account.session, RUN)) == 1
    assert schedules.find_kills(account.session, RUN) == [f"gpurun-{RUN}-{box.box}"]


def test_a_kill_that_is_there_is_replaced_only_by_another(
    account: TestAccount, run: BuiltRun
) -> None:
    box = run.armed()
    name = f"gpurun-{RUN}-l4"
    first = schedules.fires_at(account.session, name)
    assert first == run.tags.expires_at.replace(microsecond=0)
    later = run.tags.expires_at + timedelta(hours=1)
    schedules.ensure_kill(account.session, run.tags, "l4", box.instance_id, later, run.kill_role)
    assert schedules.fires_at(account.session, name) == later.replace(microsecond=0)
    schedules.delete_kills(account.session, RUN)
    assert schedules.fires_at(account.session, name) is None


def test_a_guard_is_there_before_the_box_and_goes_with_it(
    account: TestAccount, run: BuiltRun
) -> None:
    run.guard()
    run.guard()
    name = schedules.guard_name(RUN, "l4")
    assert schedules.find_kills(account.session, RUN) == [name]
    assert schedules.fires_at(account.session, name) == run.tags.expires_at.replace(microsecond=0)
    run.armed()
    assert schedules.find_kills(account.session, RUN) == [f"gpurun-{RUN}-l4", name]
    assert teardown(account.session, RUN, account.now()) == []
    assert schedules.find_kills(account.session, RUN) == []


def test_what_a_guard_asks_for_ends_the_boxs_instances_and_no_others(
    account: TestAccount, run: BuiltRun
) -> None:
    account.turn()
    mine, again, other = run.launch(), run.launch("l40s"), build(account, OTHER_RUN).launch()
    run.guard()
    guard = account.scheduler.get_schedule(Name=schedules.guard_name(RUN, "l4"))
    asked = json.loads(guard["Target"]["Input"])
    for _ in range(2):
        assert len(account.ssm.start_automation_execution(**asked)["AutomationExecutionId"]) == 36
    states = {box.instance_id: box.alive for box in find_boxes(account.session, RUN)}
    assert states == {mine.instance_id: False, again.instance_id: True}
    assert [box.instance_id for box in find_boxes(account.session, OTHER_RUN) if box.alive] == [
        other.instance_id
    ]


@pytest.mark.parametrize("lost", ["ec2:TerminateInstances", "tag:GetResources"])
def test_an_automation_whose_role_may_not_ends_nothing_and_tells_nobody(
    account: TestAccount, run: BuiltRun, lost: str
) -> None:
    account.turn()
    box = run.launch()
    kill = f"gpurun-{RUN}-kill"
    policy = account.iam.get_role_policy(RoleName=kill, PolicyName="gpurun")["PolicyDocument"]
    text = json.dumps(policy).replace(lost, "sqs:Nothing")
    account.iam.put_role_policy(RoleName=kill, PolicyName="gpurun", PolicyDocument=text)
    account.ssm.start_automation_execution(**automation(run))
    (seen,) = find_boxes(account.session, RUN)
    assert (seen.instance_id, seen.alive) == (box.instance_id, True)


def automation(run: BuiltRun) -> dict[str, Any]:
    return {
        "DocumentName": "AWS-TerminateEC2Instance",
        "TargetParameterName": "InstanceId",
        "Targets": [{"Key": "tag:gpurun:guard", "Values": [f"{RUN}/l4"]}],
        "Parameters": {"AutomationAssumeRole": [run.kill_role]},
    }


TAG = {"Key": "tag:gpurun:guard", "Values": [f"{RUN}/l4"]}
WRONG = [
    ({"DocumentName": "AWS-TerminateInstances"}, "AutomationDefinitionNotFoundException"),
    ({"Targets": [TAG, TAG]}, "ValidationException"),
    ({"Targets": [{**TAG, "Values": ["a", "b"]}]}, "InvalidTarget"),
    ({"Targets": [{**TAG, "Key": "ParameterValues"}]}, "InvalidTarget"),
    ({"TargetParameterName": "Instances"}, "InvalidAutomationExecutionParametersException"),
    ({"Targets": []}, "InvalidAutomationExecutionParametersException"),
    (
        {"Parameters": {"AutomationAssumeRole": ["arn:aws:iam::123456789012:role/nobody"]}},
        "InvalidAutomationExecutionParametersException",
    ),
]


@pytest.mark.parametrize("wrong, code", WRONG)
def test_an_automation_that_could_end_nothing_is_refused(
    account: TestAccount, run: BuiltRun, wrong: dict[str, Any], code: str
) -> None:
    account.turn()
    asked = automation(run) | wrong
    assert refusal(account.ssm.start_automation_execution, **asked) == code


@pytest.mark.parametrize("wrong", [wrong for wrong, _ in WRONG[:-1]])
def test_a_schedule_of_such_an_automation_is_refused_when_it_is_made(
    account: TestAccount, run: BuiltRun, wrong: dict[str, Any]
) -> None:
    account.turn()
    run.guard()
    name = {"Name": schedules.guard_name(RUN, "l4")}
    guard = account.scheduler.get_schedule(**name)
    target = {**guard["Target"], "Input": json.dumps(automation(run) | wrong)}
    kept = {key: guard[key] for key in ("FlexibleTimeWindow", "ScheduleExpression")}
    update = account.scheduler.update_schedule
    assert refusal(update, **name, **kept, Target=target) == "ValidationException"


def test_an_automations_role_must_let_ssm_in(account: TestAccount, run: BuiltRun) -> None:
    account.turn()
    asked = automation(run) | {
        "Parameters": {"AutomationAssumeRole": [run.kill_role.replace("-kill", "-box")]}
    }
    said = refusal(account.ssm.start_automation_execution, **asked)
    assert said == "InvalidAutomationExecutionParametersException"


def test_a_network_that_is_in_use_stays(account: TestAccount, run: BuiltRun) -> None:
    account.turn()
    run.launch()
    with pytest.raises(ApiError, match="still in use"):
        network.delete_network(account.session, RUN)


def test_another_key_replaces_the_runs_own(account: TestAccount, run: BuiltRun) -> None:
    other = KEY.replace("EXwRy", "EXwRz")
    for _ in range(2):
        keys.ensure_key_pair(account.session, run.tags, other)
    mine = [{"Name": "tag:gpurun:run", "Values": [RUN]}]
    (pair,) = account.ec2.describe_key_pairs(Filters=mine, IncludePublicKey=True)["KeyPairs"]
    assert pair["PublicKey"].split()[1] == other.split()[1]


def test_quota_zones_and_room_are_as_they_are_seen(account: TestAccount, run: BuiltRun) -> None:
    account.turn()
    offered = zones.offered_zones(account.session, [TYPE, "g6.2xlarge"])
    assert set(ZONES) & set(offered[TYPE])
    assert set(ZONES) <= zones.open_zones(account.session)
    run.launch()
    used = quotas.QuotaUse(limit=256, used=4)
    assert quotas.vcpu_use(account.session, "L-DB2E81BA") == used
    assert quotas.vcpu_use(account.session, "L-3819A6DF") == quotas.QuotaUse(limit=256, used=0)
    assert quotas.vcpu_use(account.session, "L-00000000") is None


def test_results_are_written_once_read_on_and_found_again(account: TestAccount) -> None:
    account.turn()
    bucket = ensure_bucket(account.session)
    assert ensure_bucket(account.session) == bucket
    key = f"runs/{RUN}/run.json"
    assert bucket.put(key, b"{}", if_absent=True)
    assert bucket.put(key, b"{}", if_absent=True)
    assert not bucket.put(key, b"other", if_absent=True)
    bucket.put(f"runs/{RUN}/jobs/a/log", b"0123456789")
    assert (bucket.get(key), bucket.get("none")) == (b"{}", None)
    assert (bucket.head(key), bucket.head("none")) == (2, None)
    assert b"".join(bucket.read_range(f"runs/{RUN}/jobs/a/log", 4)) == b"456789"
    assert list(bucket.read_range(f"runs/{RUN}/jobs/a/log", 10)) == []
    assert list(bucket.keys(f"runs/{RUN}/jobs/")) == [(f"runs/{RUN}/jobs/a/log", 10)]
    assert list(bucket.folders("runs/")) == [RUN]
    assert [each.name for each in result_buckets(account.session)] == [bucket.name]
    assert find_run_bucket(account.session, RUN).name == bucket.name


def test_a_file_is_uploaded_as_it_is(account: TestAccount, tmp_path: Path) -> None:
    account.turn()
    path = tmp_path / "payload"
    path.write_bytes(b"x" * 1000)
    bucket = ensure_bucket(account.session)
    bucket.put_file("runs/r/payload", path)
    assert bucket.get("runs/r/payload") == path.read_bytes()
    with pytest.raises(ApiError, match="NoSuchBucket"):
        Bucket(account.session, "gpurun-none").put_file("a", path)


# What EC2, IAM and S3 tell, and moto doesn't.
_NOT_IN_MOTO = {
    "AvailabilityZones.OptInStatus",
    "Buckets.BucketRegion",
    "Instances.SecurityGroups.GroupId",
    "Instances.SpotInstanceRequestId",
    "IsTruncated",
    "Reservations.Instances.SecurityGroups.GroupId",
    "Reservations.Instances.SpotInstanceRequestId",
    "Volumes.Attachments.DeleteOnTermination",
    "Volumes.Throughput",
}


def test_the_model_answers_in_the_shape_that_moto_answers_in() -> None:
    ours, theirs = _shapes("model"), _shapes("moto")
    assert ours.keys() == theirs.keys()
    other = {
        f"{operation}: {path} is {kind}, in moto {theirs[operation].get(path, 'nothing')}"
        for operation, shape in ours.items()
        for path, kind in shape.items()
        if theirs[operation].get(path) != kind and path not in _NOT_IN_MOTO
    }
    assert sorted(other) == []


def _shapes(name: str) -> dict[str, dict[str, str]]:
    """By operation, the type of all that was answered while a run was built and torn down."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    with open_account(name) as account:
        clients: dict[Any, Any] = {
            (service, account.session.region, fast): Listening(account.client(service), found)
            for service in SERVICES
            for fast in (False, True)
        }
        account.session.__dict__["clients"] = clients
        _a_short_life(account)
    return found


def _a_short_life(account: TestAccount) -> None:
    run = build(account)
    run.armed()
    run.armed("spot", spot=True)
    run.bucket.put(f"runs/{RUN}/run.json", b"{}")
    run.bucket.get(f"runs/{RUN}/run.json")
    find_run_bucket(account.session, RUN)
    leftovers(account.session, RUN)
    leftovers(account.session)
    quotas.vcpu_use(account.session, "L-DB2E81BA")
    teardown(account.session, RUN, account.now())


class Listening:
    """A client that notes the shape of each answer."""

    def __init__(self, client: Any, found: dict[str, dict[str, str]]) -> None:
        self._client, self._found = client, found

    def __getattr__(self, operation: str) -> Any:
        real = getattr(self._client, operation)
        if operation in ("can_paginate", "meta"):
            return real
        return self._pages if operation == "get_paginator" else self._noting(operation, real)

    def _noting(self, operation: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **parameters: Any) -> Any:
            answer = real(*args, **parameters)
            _note(self._found[operation], "", answer)
            return answer

        return call

    def _pages(self, operation: str) -> Any:
        return _Pages(self._noting(operation, lambda page: page), self._client, operation)


class _Pages:
    def __init__(self, note: Callable[..., Any], client: Any, operation: str) -> None:
        self._note, self._client, self._operation = note, client, operation

    def paginate(self, **parameters: Any) -> Any:
        return map(self._note, self._client.get_paginator(self._operation).paginate(**parameters))


def _note(found: dict[str, str], path: str, value: Any) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "ResponseMetadata":
                _note(found, f"{path}.{key}".lstrip("."), inner)
    elif isinstance(value, (list, tuple)):
        found[path] = "list"
        for inner in value:
            _note(found, path, inner) if isinstance(inner, dict) else None
    elif hasattr(value, "iter_chunks"):
        found[path] = "body"
    else:
        found[path] = "time" if isinstance(value, datetime) else type(value).__name__


def test_the_model_knows_every_operation_that_we_use() -> None:
    """All words of our code that boto3 has as an operation, and then some."""
    words: set[str] = set()
    for path in Path(orchestrator.__path__[0]).rglob("*.py"):
        if "localcloud" not in path.parts:
            words |= set(re.findall(r"\b[a-z]+(?:_[a-z0-9]+)+\b", path.read_text("utf-8")))
    # Also names of functions of ours, or of another service's operation.
    words -= {"list_tags_for_resource"}
    models = botocore.session.Session()
    for service in SERVICES:
        there = models.get_service_model(service).operation_names
        used = {xform_name(name) for name in there} & words
        assert used - operations_of(service) == set(), service


@pytest.mark.parametrize("service", SERVICES)
def test_the_model_pages_what_boto3_pages(service: str) -> None:
    make: Any = nowhere().client
    boto = make(service)
    with open_account("model") as account:
        ours = account.client(service)
        known = operations_of(service)
        assert {name for name in known if ours.can_paginate(name)} == {
            name for name in known if boto.can_paginate(name)
        }


@pytest.mark.parametrize("service", SERVICES)
def test_every_operation_of_the_model_is_one_of_boto3s(service: str) -> None:
    there = botocore.session.Session().get_service_model(service).operation_names
    assert operations_of(service) <= {xform_name(name) for name in there}
