"""What only the model can do: time at will, hooks, machines that end, boxes' rights, and speed."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError

from orchestrator.aws import dead_letters, schedules
from orchestrator.aws.instances import find_boxes
from orchestrator.aws.skew import check_clock
from orchestrator.aws.stack import teardown
from orchestrator.errors import ApiError, ClockWrong
from tests.fake_clock import FakeClock
from tests.faults.cloud import Call, Instance, ModelCloud, ModelRules
from tests.faults.cloud.building import TYPE, BuiltRun, build_run
from tests.faults.cloud.kit import (
    ACCOUNT,
    REGION,
    RUN,
    ZONES,
    TestAccount,
    model_session,
    refusal,
)

HOURLY = Decimal("0.8048")


@pytest.fixture
def account() -> TestAccount:
    clock, rules = FakeClock(), ModelRules()
    cloud = ModelCloud(clock.now, rules, account=ACCOUNT, region=REGION)
    return TestAccount("model", model_session(cloud, clock), rules, clock, cloud)


@pytest.fixture
def cloud(account: TestAccount) -> ModelCloud:
    assert account.cloud is not None
    return account.cloud


@pytest.fixture
def run(account: TestAccount) -> BuiltRun:
    return build_run(account.session, account.tags(), ZONES)


def test_a_schedule_fires_at_its_time_however_far_the_clock_jumps(
    account: TestAccount, cloud: ModelCloud, run: BuiltRun
) -> None:
    account.turn(shutdown_s=30, schedule_delay_s=59)
    box = run.armed()
    account.pass_time(86_400)
    cloud.settle()
    instance = cloud.instances[box.instance_id]
    assert instance.ended_at == run.tags.expires_at + timedelta(seconds=59)
    assert instance.terminated_at == run.tags.expires_at + timedelta(seconds=89)
    assert schedules.find_kills(account.session, RUN) == []
    (compute,) = [line for line in cloud.bill_lines(RUN) if line["kind"] == "compute"]
    assert Decimal(compute["hours"]) == Decimal("3.016389")


def test_the_next_change_is_told_until_there_is_none(
    account: TestAccount, cloud: ModelCloud, run: BuiltRun
) -> None:
    account.turn(boot_s=40, shutdown_s=30, linger_s=20)
    assert cloud.next_change() is None
    box = run.armed()
    start, seen = account.now(), []
    while (due := cloud.next_change()) is not None:
        assert account.clock is not None
        account.clock.at = max(due, account.now())
        cloud.settle()
        seen.append((int((due - start).total_seconds()), cloud.instances[box.instance_id].state))
    assert seen == [
        (40, "running"),
        (10_800, "shutting-down"),
        (10_830, "terminated"),
        (10_850, "terminated"),
    ]


def test_a_schedule_without_rights_is_given_up_into_the_queue(
    account: TestAccount, cloud: ModelCloud, run: BuiltRun
) -> None:
    box = run.armed()
    name = f"gpurun-{RUN}-kill"
    letters = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}
    for policy in account.iam.list_role_policies(RoleName=name)["PolicyNames"]:
        account.iam.put_role_policy(
            RoleName=name,
            PolicyName=policy,
            PolicyDocument=json.dumps({"Statement": [letters]}),
        )
    account.pass_time(3 * 3600 + 60)
    cloud.settle()
    assert dead_letters.read_letters(account.session, RUN) == []
    account.pass_time(25 * 3600)
    cloud.settle()
    assert cloud.instances[box.instance_id].state == "running"
    (letter,) = dead_letters.read_letters(account.session, RUN)
    assert letter.box == "l4"


def test_a_guard_ends_at_its_time_what_carries_its_tag_by_then(
    account: TestAccount, cloud: ModelCloud, run: BuiltRun
) -> None:
    account.turn(automation_s=45)
    run.guard()
    account.pass_time(3600)
    box, other = run.launch(), run.launch("l40s")
    account.pass_time(3 * 3600)
    cloud.settle()
    instance = cloud.instances[box.instance_id]
    assert instance.ended_at == run.tags.expires_at + timedelta(seconds=45)
    assert instance.reason == "Client.UserInitiatedShutdown"
    assert cloud.instances[other.instance_id].state == "running"
    assert schedules.find_kills(account.session, RUN) == []


@pytest.mark.parametrize("lost", ["ssm:StartAutomationExecution", "iam:PassRole"])
def test_a_guard_that_may_not_start_its_automation_says_so_in_the_queue(
    account: TestAccount, cloud: ModelCloud, run: BuiltRun, lost: str
) -> None:
    run.guard()
    box = run.launch()
    kill = f"gpurun-{RUN}-kill"
    policy = account.iam.get_role_policy(RoleName=kill, PolicyName="gpurun")["PolicyDocument"]
    text = json.dumps(policy).replace(lost, "sqs:Nothing")
    account.iam.put_role_policy(RoleName=kill, PolicyName="gpurun", PolicyDocument=text)
    account.pass_time(30 * 3600)
    cloud.settle()
    assert cloud.instances[box.instance_id].state == "running"
    (letter,) = dead_letters.read_letters(account.session, RUN)
    assert (letter.box, letter.reason[:10]) == ("l4", "its guard:")


def test_rights_that_come_back_in_time_let_a_schedule_fire(
    account: TestAccount, cloud: ModelCloud, run: BuiltRun
) -> None:
    box = run.armed()
    role = cloud.client("iam").get_role_policy(RoleName=f"gpurun-{RUN}-kill", PolicyName="gpurun")
    account.iam.delete_role_policy(RoleName=f"gpurun-{RUN}-kill", PolicyName="gpurun")
    account.pass_time(3 * 3600 + 60)
    cloud.settle()
    assert cloud.instances[box.instance_id].state == "running"
    account.iam.put_role_policy(
        RoleName=f"gpurun-{RUN}-kill",
        PolicyName="gpurun",
        PolicyDocument=json.dumps(role["PolicyDocument"]),
    )
    account.pass_time(300)
    cloud.settle()
    assert cloud.instances[box.instance_id].state == "terminated"


def test_a_scheduler_out_of_order_does_what_it_missed_when_it_is_back(
    account: TestAccount, cloud: ModelCloud, run: BuiltRun
) -> None:
    box = run.armed()
    cloud.schedules_fire = False
    account.pass_time(4 * 3600)
    cloud.settle()
    assert cloud.instances[box.instance_id].state == "running"
    assert cloud.next_change() is None
    cloud.schedules_fire = True
    cloud.settle()
    assert cloud.instances[box.instance_id].state == "terminated"


def test_a_box_that_powers_off_ends_or_stops_as_it_was_launched(
    account: TestAccount, cloud: ModelCloud, run: BuiltRun
) -> None:
    ended: list[str] = []
    cloud.on_end = lambda instance: ended.append(instance.id)
    box = run.launch()
    stopping = run.session.client("ec2").run_instances(
        ImageId=run.ami.id,
        InstanceType="g6.xlarge",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=run.tags.spec("instance", role="box", name="kept"),
    )["Instances"][0]["InstanceId"]
    account.pass_time(3600)
    for instance_id in (box.instance_id, stopping):
        cloud.power_off(instance_id)
        cloud.power_off(instance_id)
    account.pass_time(1800)
    (seen,) = [each for each in find_boxes(account.session, RUN) if each.box]
    assert (seen.state, seen.reason) == ("terminated", "Client.InstanceInitiatedShutdown")
    assert cloud.instances[stopping].state == "stopped"
    assert ended == [box.instance_id]
    lines = [(line["kind"], line["hours"]) for line in cloud.bill_lines(RUN)]
    assert lines.count(("compute", "1.000000")) == 2
    assert ("ebs", "1.500000") in lines
    assert [each.split()[0] for each in cloud.billable(RUN)] == ["instance"]


def test_a_spot_box_is_taken_and_no_other(cloud: ModelCloud, run: BuiltRun) -> None:
    spot, usual = run.launch("spot", spot=True), run.launch("usual")
    cloud.take_spot(spot.instance_id)
    with pytest.raises(ValueError, match="isn't a spot"):
        cloud.take_spot(usual.instance_id)
    cloud.settle()
    assert cloud.instances[spot.instance_id].reason == "Server.SpotInstanceTermination"
    (seen,) = [box for box in find_boxes(run.session, RUN) if box.box == "spot"]
    assert (seen.state, seen.ended_at) == ("terminated", None)


def test_a_machine_that_fails_ends_its_instance(cloud: ModelCloud, run: BuiltRun) -> None:
    box = run.launch()
    cloud.lose(box.instance_id)
    assert find_boxes(run.session, RUN)[0].reason == "Server.InternalError"


def test_the_bill_is_the_meters(account: TestAccount, cloud: ModelCloud, run: BuiltRun) -> None:
    run.launch()
    account.pass_time(7200)
    teardown(account.session, RUN, account.now())
    account.pass_time(7200)
    lines = {line["kind"]: Decimal(line["usd"]) for line in cloud.bill_lines(RUN)}
    assert lines["compute"] == 2 * HOURLY
    assert lines["ipv4"] == Decimal("0.01")
    run.bucket.put(f"runs/{RUN}/a", b"x" * 1000)
    run.bucket.get(f"runs/{RUN}/a")
    kinds = {line["kind"] for line in cloud.bill_lines(RUN)}
    assert kinds == {"compute", "ipv4", "ebs", "s3", "transfer"}
    assert cloud.bill(RUN) == sum(Decimal(line["usd"]) for line in cloud.bill_lines(RUN))
    assert cloud.bill("another") == 0


def test_hooks_see_calls_before_and_after_their_effect(cloud: ModelCloud, run: BuiltRun) -> None:
    seen: list[tuple[str, int]] = []
    launched: list[Instance] = []
    cloud.on_launch = launched.append

    def note(call: Call) -> None:
        if call.operation == "run_instances":
            seen.append((call.caller, len(cloud.instances)))

    def lose(call: Call) -> None:
        note(call)
        if call.operation == "run_instances" and len(seen) == 2:
            raise ConnectionClosedError(endpoint_url="https://ec2")

    cloud.before, cloud.after = note, lose
    box = run.launch()
    assert seen == [("controller", 0), ("controller", 1), ("controller", 1), ("controller", 1)]
    assert [(each.id, each.state) for each in launched] == [(box.instance_id, "running")]


def test_a_call_that_its_hook_stops_has_no_effect(account: TestAccount, cloud: ModelCloud) -> None:
    def stop(call: Call) -> None:
        raise KeyboardInterrupt(call.operation)

    cloud.before = stop
    with pytest.raises(KeyboardInterrupt, match="create_vpc"):
        account.ec2.create_vpc(CidrBlock="10.0.0.0/16")
    cloud.before = None
    assert account.ec2.describe_vpcs()["Vpcs"] == []


def test_a_box_may_what_its_role_allows(cloud: ModelCloud, run: BuiltRun) -> None:
    s3 = cloud.client("s3", caller=f"box:{run.launch().instance_id}")
    own = {"Bucket": run.bucket.name, "Key": f"runs/{RUN}/a"}
    s3.put_object(**own, Body=b"data")
    assert s3.get_object(**own)["Body"].read() == b"data"
    listed = s3.list_objects_v2(Bucket=run.bucket.name, Prefix=f"runs/{RUN}/")
    assert [entry["Key"] for entry in listed["Contents"]] == [own["Key"]]
    other = {"Bucket": run.bucket.name, "Key": "runs/other/a"}
    missing = {"Bucket": run.bucket.name, "Key": f"runs/{RUN}/none"}
    assert refusal(s3.delete_object, **own) == "AccessDenied"
    assert refusal(s3.put_object, **other, Body=b"") == "AccessDenied"
    assert refusal(s3.get_object, **missing) == "AccessDenied"
    assert refusal(s3.head_object, **missing) == "403"
    assert refusal(s3.list_objects_v2, Bucket=run.bucket.name) == "AccessDenied"
    ec2 = cloud.client("ec2", caller=s3._caller)
    assert refusal(ec2.describe_instances) == "UnauthorizedOperation"
    cloud.drop(RUN, "role", "-box")
    assert refusal(s3.put_object, **own, Body=b"") == "AccessDenied"


def test_what_boxes_read_leaves_no_region(cloud: ModelCloud, run: BuiltRun) -> None:
    own = {"Bucket": run.bucket.name, "Key": f"runs/{RUN}/a"}
    s3 = cloud.client("s3", caller=f"box:{run.launch().instance_id}")
    s3.put_object(**own, Body=b"x" * 10_000)
    s3.get_object(**own)
    assert "transfer" not in {line["kind"] for line in cloud.bill_lines(RUN)}


def test_new_things_that_show_late_are_waited_for(account: TestAccount, cloud: ModelCloud) -> None:
    account.turn(invisible_s=10)
    run = build_run(account.session, account.tags(), ZONES)
    box = run.armed()
    assert find_boxes(account.session, RUN) == []
    lost = {"InstanceIds": [box.instance_id]}
    assert refusal(account.ec2.terminate_instances, **lost) == "InvalidInstanceID.NotFound"
    assert run.launch().instance_id == box.instance_id
    account.pass_time(10)
    assert [each.instance_id for each in find_boxes(account.session, RUN)] == [box.instance_id]
    assert teardown(account.session, RUN, account.now()) == []
    assert cloud.tagged(RUN) == []


def test_answers_are_dated_by_the_clouds_clock(account: TestAccount) -> None:
    check_clock(account.session, account.now)
    with pytest.raises(ClockWrong, match="120 s ahead"):
        check_clock(account.session, lambda: account.now() + timedelta(seconds=120))


def test_what_has_ended_is_forgotten_after_an_hour(
    account: TestAccount, cloud: ModelCloud, run: BuiltRun
) -> None:
    box = run.launch()
    account.ec2.terminate_instances(InstanceIds=[box.instance_id])
    account.pass_time(3599)
    assert len(find_boxes(account.session, RUN)) == 1
    account.pass_time(1)
    assert find_boxes(account.session, RUN) == []
    assert cloud.instances[box.instance_id].state == "terminated"


def test_a_bucket_may_be_spoilt_or_lost(cloud: ModelCloud, run: BuiltRun) -> None:
    run.bucket.put("runs/r/a", b"data")
    objects = cloud.objects(run.bucket.name)
    assert dict(objects) == {"runs/r/a": b"data"}
    objects["runs/r/a"] = b"spoilt"
    assert run.bucket.get("runs/r/a") == b"spoilt"
    del objects["runs/r/a"]
    assert run.bucket.get("runs/r/a") is None
    cloud.delete_bucket(run.bucket.name)
    with pytest.raises(ApiError, match="NoSuchBucket"):
        run.bucket.put("runs/r/a", b"data")


def test_two_lives_of_the_same_calls_are_the_same(account: TestAccount) -> None:
    clock = FakeClock()
    other = model_session(ModelCloud(clock.now), clock)
    lives = [build_run(session, account.tags(), ZONES) for session in (account.session, other)]
    assert lives[0].net == lives[1].net
    assert lives[0].launch().instance_id == lives[1].launch().instance_id


def twenty_five_calls(cloud: ModelCloud) -> None:
    """A network with a box in it, and all of it gone again."""
    ec2: Any = cloud.client("ec2")
    tags = [{"Key": "gpurun:run", "Value": RUN}]
    vpc = ec2.create_vpc(
        CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}]
    )["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    here = [{"Name": "vpc-id", "Values": [vpc]}]
    (table,) = ec2.describe_route_tables(Filters=here)["RouteTables"]
    route = {"RouteTableId": table["RouteTableId"], "DestinationCidrBlock": "0.0.0.0/0"}
    ec2.create_route(**route, GatewayId=gateway)
    group = ec2.create_security_group(GroupName="g", Description="d", VpcId=vpc)["GroupId"]
    image = ec2.describe_images()["Images"][0]["ImageId"]
    asked = {"ImageId": image, "InstanceType": TYPE, "MinCount": 1, "MaxCount": 1}
    box = ec2.run_instances(**asked, SubnetId=subnet, SecurityGroupIds=[group])["Instances"][0]
    for _ in range(3):
        ec2.describe_instances(InstanceIds=[box["InstanceId"]])
    ec2.terminate_instances(InstanceIds=[box["InstanceId"]])
    for _ in range(3):
        ec2.describe_network_interfaces(Filters=here)
    ec2.describe_security_groups(Filters=here)
    ec2.delete_security_group(GroupId=group)
    ec2.delete_route(**route)
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    ec2.describe_subnets(Filters=here)
    ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc)


def test_a_cycle_of_calls_takes_milliseconds() -> None:
    clock, best = FakeClock(), float("inf")
    for _ in range(30):
        cloud = ModelCloud(clock.now)
        start = time.process_time()
        twenty_five_calls(cloud)
        best = min(best, time.process_time() - start)
    assert best < 0.003
