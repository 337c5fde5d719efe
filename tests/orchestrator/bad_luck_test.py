"""Bad luck while a run is under way: it ends clean, within its cap, and says what was lost."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator import run, start
from orchestrator.aws import schedules
from orchestrator.aws.stack import leftovers
from orchestrator.aws.tags import of_run
from orchestrator.errors import ApiError, CapacityError, ClockWrong, QuotaError
from orchestrator.localcloud.strict import StrictRules, strict_aws
from orchestrator.payload import Payload
from orchestrator.quote import SLACK
from orchestrator.run import EventKind
from orchestrator.runner import Runner
from orchestrator.snapshot import Stage
from tests.orchestrator.aws.account import refuse
from tests.orchestrator.controllers import HAND, OFF, TAKEN, Clock, World

DAY = timedelta(days=1)
ZONES = "abcdf"


@pytest.fixture(scope="module")
def clients() -> dict[Any, Any]:
    """boto3 clients are slow to make and know no state."""
    return {}


@pytest.fixture
def world(
    tmp_path: Path, clients: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    """What boxes would fetch isn't the subject, and slow to pack."""
    payload = Payload(tmp_path / "payload.tar.gz", "0" * 64)
    payload.path.write_bytes(b"")
    monkeypatch.setattr(start, "build_payload", lambda *_, **__: payload)
    clock = Clock()
    with strict_aws(StrictRules(now=clock.true)) as rules:
        yield World(rules, clock, tmp_path, clients)


def in_order(*acts: Callable[[], None]) -> Callable[[], None]:
    """The first act at the first wait, and so on; nothing after the last."""
    left = list(acts)

    def next_act() -> None:
        if left:
            left.pop(0)()

    return next_act


def drive(world: World, *acts: Callable[[], None], poll_s: float = 15) -> Runner:
    runner = world.controller()
    runner.poll_s = poll_s
    world.clock.at_wait = in_order(*acts)
    runner.drive()
    return runner


def die_after_the_launch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller has launched the box, and is gone before it notes so."""
    one = world.controller()

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(one.launcher.armer, "note", die)
    with pytest.raises(KeyboardInterrupt):
        one.launch_all()


def kill_targets(world: World) -> list[str]:
    scheduler = world.session.client("scheduler")
    names = sorted(each["Name"] for each in scheduler.list_schedules()["Schedules"])
    inputs = [scheduler.get_schedule(Name=name)["Target"]["Input"] for name in names]
    asked = [json.loads(text) for text in inputs]
    return [each for of in asked for each in of.get("InstanceIds") or of["Targets"][0]["Values"]]


def test_what_ec2_takes_away_is_launched_again_and_its_jobs_go_on(world: World) -> None:
    world.begin(spot=True)
    seen: list[list[str]] = []
    runner = drive(
        world,
        lambda: world.says("running"),
        lambda: world.end(TAKEN),
        lambda: seen.append(kill_targets(world)),
        world.finishes,
    )
    first, second = world.instances()
    assert (first.attempt, second.attempt) == (1, 2)
    guarded = f"{world.record.run_id}/one"
    assert seen == [[second.instance_id, guarded]]  # the schedule is the new one's
    assert runner.look().stage is Stage.CLEAN
    assert runner.look().jobs[0].state == "done"
    assert world.money().keys() == {"one", "one#2"}
    assert world.left() == []


def test_its_successor_keeps_its_deadlines_and_lives_no_longer(world: World) -> None:
    world.begin()
    drive(world, lambda: world.end(TAKEN), world.finishes)
    ec2 = world.session.client("ec2")
    texts = []
    for box in world.instances():
        answer: Any = ec2.describe_instance_attribute(
            InstanceId=box.instance_id, Attribute="userData"
        )
        texts.append(answer["UserData"]["Value"])
    assert texts[0] != texts[1]
    end_at = f"end_at={int(world.record.plan.box('one').poweroff_at.timestamp())}"
    first, second = (base64.b64decode(text).decode() for text in texts)
    assert end_at in first
    assert end_at in second
    limits = [int(text.partition("limit_s=")[2].split()[0]) for text in (first, second)]
    assert limits[1] < limits[0] == 7200


def test_a_spot_box_that_drained_after_its_notice_is_launched_again(world: World) -> None:
    world.begin(spot=True)

    def drained() -> None:
        world.says("cut", "spot notice: step 7")
        world.end(OFF)

    drive(world, drained, world.finishes)
    assert [box.attempt for box in world.instances()] == [1, 2]
    assert world.left() == []


def test_without_a_retry_the_jobs_of_a_lost_box_are_cut_and_say_why(world: World) -> None:
    world.begin(retries=0)
    drive(world, lambda: world.end(TAKEN))
    assert len(world.instances()) == 1
    assert world.status()["state"] == "cut"
    assert world.status()["reason"] == f"its box ended: {TAKEN}, and no retry is left"
    assert world.left() == []


def test_retries_bound_how_often_a_box_is_launched(world: World) -> None:
    world.begin(retries=2)
    drive(world, *[lambda: world.end(TAKEN)] * 9)
    assert [box.attempt for box in world.instances()] == [1, 2, 3]
    assert world.money().keys() == {"one", "one#2", "one#3"}


def test_a_successor_that_does_not_fit_under_the_cap_is_not_launched(world: World) -> None:
    """Each loss right after a launch costs a minute, and the worst case hardly gets smaller."""
    world.begin(retries=9)
    cap = world.record.plan.worst_case_usd + Decimal("0.03")
    world.begin(cap=str(cap), retries=9)
    world.clock.at_wait = lambda: world.end(TAKEN)
    runner = world.controller()
    runner.poll_s = 1
    runner.drive()
    assert 1 < len(world.instances()) < 10
    assert "only $" in world.status()["reason"]
    assert sum(world.money().values()) <= cap
    assert world.left() == []


@pytest.mark.parametrize("reason", [HAND, OFF])
def test_what_a_person_or_the_box_itself_ended_is_not_launched_again(
    world: World, reason: str
) -> None:
    world.begin()
    drive(world, lambda: world.end(reason))
    assert len(world.instances()) == 1
    assert world.status()["reason"] == f"its box ended: {reason}"
    assert world.left() == []


def test_a_box_that_ec2_no_longer_lists_is_launched_again_once_it_surely_is_gone(
    world: World,
) -> None:
    world.begin()
    before = world.clock.at
    drive(world, world.forget, *[lambda: None] * 7, world.finishes, poll_s=60)
    (second,) = world.instances()
    assert second.attempt == 2
    assert second.launched_at - before >= timedelta(minutes=5)
    assert world.money().keys() == {"one", "one#2"}


def test_a_box_whose_agent_is_heard_of_is_not_launched_again(world: World) -> None:
    world.begin()
    key = f"runs/{world.record.run_id}/boxes/one/heartbeat.json"

    def beat() -> None:
        at = world.clock.at.timestamp()
        world.bucket.put(key, json.dumps({"phase": "running", "at": at}).encode())

    def gone_but_heard() -> None:
        world.forget()
        beat()

    drive(world, gone_but_heard, *[beat] * 11, *[lambda: None] * 2, world.finishes, poll_s=50)
    launches = world.events(EventKind.LAUNCHED)
    assert launches[1].at - launches[0].at >= timedelta(minutes=10)


def test_a_box_that_said_goodbye_is_launched_again_at_once(world: World) -> None:
    world.begin(spot=True)
    key = f"runs/{world.record.run_id}/boxes/one/heartbeat.json"

    def drained() -> None:
        world.says("cut", "spot notice: step 7")
        at = world.clock.at.timestamp()
        world.bucket.put(key, json.dumps({"phase": "off", "at": at}).encode())
        world.end(OFF)

    drive(world, drained, world.finishes, poll_s=15)
    first, second = world.instances()
    assert second.launched_at - first.launched_at < timedelta(seconds=60)


@pytest.mark.parametrize("suffix", ["", "-one", "-one.tag"])
def test_a_schedule_or_guard_that_somebody_deleted_is_made_again(
    world: World, suffix: str
) -> None:
    world.begin()
    seen: list[list[str]] = []

    def deleted() -> None:
        scheduler = world.session.client("scheduler")
        names = [each["Name"] for each in scheduler.list_schedules()["Schedules"]]
        for name in (name for name in names if name.endswith(suffix)):
            scheduler.delete_schedule(Name=name, GroupName="default")

    looks = lambda: seen.append(kill_targets(world))  # noqa: E731
    drive(world, deleted, looks, world.finishes)
    (box,) = world.instances()
    assert seen == [[box.instance_id, f"{world.record.run_id}/one"]]
    assert world.left() == []


@pytest.mark.parametrize("name", ["find_kills", "ensure_kill", "ensure_guard"])
def test_a_used_up_quota_while_a_run_is_watched_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    world.begin()
    made = world.controller()
    made.launch_all()
    scheduler = world.session.client("scheduler")
    for each in scheduler.list_schedules()["Schedules"]:
        scheduler.delete_schedule(Name=each["Name"], GroupName="default")
    tries: list[object] = []

    def used_up(*args: object) -> Any:
        tries.append(args)
        raise QuotaError("The account's quota is used up (CreateSchedule)")

    def passes() -> None:
        monkeypatch.undo()

    monkeypatch.setattr(schedules, name, used_up)
    drive(world, passes, world.finishes)
    assert tries
    assert world.status()["state"] == "done"
    assert world.left() == []


def test_a_box_with_something_to_save_drains_when_another_finds_no_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin()
    runner = world.controller()
    runner.launch_all()
    base = f"runs/{world.record.run_id}/boxes/one"

    def agent() -> None:
        beat = {"phase": "running", "at": world.clock.at.timestamp()}
        world.bucket.put(f"{base}/heartbeat.json", json.dumps(beat).encode())
        if world.bucket.get(f"{base}/stop") is not None:
            world.finishes()

    agent()
    world.clock.at_wait = agent
    monkeypatch.setattr(runner, "_launch_missing", no_room)
    with pytest.raises(CapacityError):
        runner.launch_all()
    assert world.status()["state"] == "done"


def no_room() -> None:
    raise CapacityError("No room")


def test_a_successor_without_room_is_tried_again_until_there_is_some(world: World) -> None:
    world.begin()

    def full() -> None:
        world.rules.capacity = {("g6.xlarge", f"us-east-1{zone}"): 0 for zone in ZONES}
        world.end(TAKEN)

    def room() -> None:
        world.rules.capacity.clear()

    drive(world, full, *[lambda: None] * 2, room, *[lambda: None] * 4, world.finishes, poll_s=120)
    assert [box.attempt for box in world.instances()] == [1, 2]
    assert len(world.events(EventKind.LAUNCHING)) < 40


def test_a_successor_that_never_finds_room_ends_with_the_jobs_time(world: World) -> None:
    world.begin()

    def full() -> None:
        world.rules.capacity = {("g6.xlarge", f"us-east-1{zone}"): 0 for zone in ZONES}
        world.end(TAKEN)

    drive(world, full, poll_s=300)
    assert world.status()["reason"] == f"its box ended: {TAKEN}, and its time is over"
    drain_at = world.record.plan.box("one").drain_at
    assert timedelta() <= world.clock.at - drain_at < timedelta(minutes=10)
    assert len(world.events(EventKind.LAUNCHING)) < 80
    assert world.money()["one#2"] == 0
    assert world.left() == []


def test_two_controllers_launch_one_successor(world: World) -> None:
    world.begin()
    one, two = world.controller(), world.controller()
    one.launch_all()
    world.end(TAKEN)

    def meanwhile(words: str) -> None:
        if words.startswith("launching"):
            two.tender.tend(two.instances())

    one.on_step = meanwhile
    one.tender.tend(one.instances())
    assert [box.attempt for box in world.alive()] == [2]
    reserved = [event.box for event in world.events(EventKind.RESERVED)]
    assert reserved.count("one#2") == 1
    assert len(world.events(EventKind.LAUNCHED)) == 2


def test_down_at_the_moment_of_a_second_launch_wins(world: World) -> None:
    world.begin()
    one, two = world.controller(), world.controller()
    one.launch_all()
    world.end(TAKEN)
    one.on_step = lambda words: two.finish() if words.startswith("launching") else None
    one.drive()
    assert world.alive() == []
    assert world.left() == []
    assert world.money().keys() == {"one", "one#2"}


def test_two_teardowns_at_the_same_moment_both_end_clean(world: World) -> None:
    world.begin()
    one, two = world.controller(), world.controller()
    one.launch_all()
    one.on_step = lambda words: two.finish() if words == "tearing down" else None
    one.finish()
    assert world.left() == []
    assert world.money().keys() == {"one"}


def test_a_box_that_outlives_its_own_deadlines_ends_though_another_goes_on(
    world: World,
) -> None:
    world.begin(cap="20", two=True)
    ended: list[timedelta] = []
    cloud_at = world.record.plan.box("one").cloud_at

    def look() -> None:
        alive = {box.box for box in world.alive()}
        if world.clock.at > cloud_at and alive == {"two"}:
            ended.append(world.clock.at - cloud_at)
            world.end(OFF)

    runner = world.controller()
    runner.launch_all()
    world.clock.at, world.clock.at_wait = cloud_at, look
    runner.drive()
    assert timedelta(minutes=1) < ended[0] < SLACK
    assert sorted(box.box for box in world.instances()) == ["one", "two"]
    assert world.money().keys() == {"one", "two"}
    assert world.left() == []


def test_what_can_not_be_ended_yet_is_tried_again_while_others_go_on(world: World) -> None:
    world.begin(cap="20", two=True)
    runner, said = world.controller(), list[str]()
    runner.launch_all()
    world.clock.at = world.record.plan.box("one").cloud_at + timedelta(minutes=2)
    runner.on_step = said.append
    with refuse(world.session, "TerminateInstances", "UnauthorizedOperation"):
        assert not runner._all_ended()
    assert "TERMINATION UNCONFIRMED" in "\n".join(said)
    assert {box.box for box in world.alive()} == {"one", "two"}
    assert not runner._all_ended()
    assert [box.box for box in world.alive()] == ["two"]


def test_each_box_is_tagged_with_its_own_expiry(world: World) -> None:
    world.begin(cap="20", two=True)
    world.controller().launch_all()
    items = leftovers(world.session, world.record.run_id)
    boxes = {box.instance_id: world.record.plan.box(box.box).cloud_at for box in world.alive()}
    told = {item.id: item.expires_at for item in items if item.id in boxes}
    assert told == boxes
    assert len(set(told.values())) == 2
    (vpc,) = [item for item in items if item.kind == "vpc"]
    assert vpc.expires_at == world.record.expires_at == max(boxes.values())


def test_a_laptop_that_slept_for_two_days_finds_nothing_to_launch(world: World) -> None:
    world.begin()

    def sleep() -> None:
        world.end(TAKEN)
        world.forget()
        world.clock.at += 2 * DAY

    runner = drive(world, sleep)
    assert len(world.events(EventKind.LAUNCHED)) == 1
    assert runner.look().stage is Stage.CLEAN
    assert world.status()["state"] == "cut"
    assert world.money()["one"] <= world.record.plan.box("one").worst_case_usd
    assert world.left() == []


def test_a_run_that_is_resumed_days_late_launches_no_box(world: World) -> None:
    world.begin()
    world.clock.at += 2 * DAY
    drive(world)
    assert world.instances() == []
    assert world.events(EventKind.LAUNCHING) == []
    assert "never launched" in world.status()["reason"]
    assert world.money() == {"one": 0}


@pytest.mark.parametrize("wrong_by", [DAY, -DAY], ids=["ahead", "behind"])
def test_by_a_wrong_clock_nothing_is_begun(world: World, wrong_by: timedelta) -> None:
    world.clock.wrong_by = wrong_by
    with pytest.raises(ClockWrong, match="86400 s") as told:
        world.begin()
    assert "timedatectl" in told.value.hint
    assert world.session.client("s3").list_buckets()["Buckets"] == []


@pytest.mark.parametrize("wrong_by", [DAY, -DAY], ids=["ahead", "behind"])
def test_by_a_wrong_clock_a_run_is_neither_launched_nor_ended(
    world: World, wrong_by: timedelta
) -> None:
    world.begin()
    world.controller().launch_all()
    world.clock.wrong_by = wrong_by
    with pytest.raises(ClockWrong):
        world.controller().drive()
    assert len(world.alive()) == 1


@pytest.mark.parametrize("wrong_by", [DAY, -DAY], ids=["ahead", "behind"])
def test_a_clock_that_jumps_while_a_run_is_watched_ends_no_box(
    world: World, wrong_by: timedelta
) -> None:
    world.begin()

    def jump() -> None:
        world.clock.wrong_by = wrong_by

    def back() -> None:
        world.clock.wrong_by = timedelta()
        world.finishes()

    try:
        drive(world, jump, lambda: None, back)
    except ClockWrong:
        assert len(world.alive()) == 1
    else:
        assert world.status()["state"] == "done"


def test_by_a_wrong_clock_a_run_can_still_be_taken_down(world: World) -> None:
    world.begin()
    world.controller().launch_all()
    world.clock.wrong_by = DAY
    world.controller().finish()
    assert world.alive() == []
    assert world.left() == []


def test_a_run_id_is_never_used_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.begin()
    taken = world.record.run_id
    free = f"{taken[:-1]}{'6' if taken.endswith('7') else '7'}"
    ids = [taken, free]
    monkeypatch.setattr(run, "new_run_id", lambda *_: ids.pop(0))
    world.begin()
    assert world.record.run_id == free
    monkeypatch.setattr(run, "new_run_id", lambda *_: taken)
    with pytest.raises(ApiError, match="Another run is on record"):
        world.begin()


def delete_roles(world: World) -> None:
    iam = world.session.client("iam")
    for profile in iam.list_instance_profiles()["InstanceProfiles"]:
        name = profile["InstanceProfileName"]
        for role in profile["Roles"]:
            iam.remove_role_from_instance_profile(
                InstanceProfileName=name, RoleName=role["RoleName"]
            )
        iam.delete_instance_profile(InstanceProfileName=name)
    for role in iam.list_roles()["Roles"]:
        for policy in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]:
            iam.delete_role_policy(RoleName=role["RoleName"], PolicyName=policy)
        iam.delete_role(RoleName=role["RoleName"])


def test_roles_that_somebody_deleted_are_made_again_for_a_successor(world: World) -> None:
    world.begin()

    def lost() -> None:
        delete_roles(world)
        world.end(TAKEN)

    drive(world, lost, world.finishes)
    assert [box.attempt for box in world.instances()] == [1, 2]
    assert world.left() == []


def test_without_its_roles_a_run_still_ends_clean(world: World) -> None:
    world.begin()
    drive(world, lambda: delete_roles(world), world.finishes)
    assert world.left() == []


def test_a_network_that_somebody_deleted_is_made_again_for_a_successor(world: World) -> None:
    world.begin()

    def lost() -> None:
        world.end(TAKEN)
        ec2 = world.session.client("ec2")
        for endpoint in ec2.describe_vpc_endpoints()["VpcEndpoints"]:
            ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint["VpcEndpointId"]])
        for gateway in ec2.describe_internet_gateways()["InternetGateways"]:
            for at in gateway["Attachments"]:
                ec2.detach_internet_gateway(
                    InternetGatewayId=gateway["InternetGatewayId"], VpcId=at["VpcId"]
                )
            ec2.delete_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"])
        for subnet in ec2.describe_subnets(Filters=of_run(world.record.run_id))["Subnets"]:
            ec2.delete_subnet(SubnetId=subnet["SubnetId"])

    drive(world, lost, world.finishes)
    assert [box.attempt for box in world.instances()] == [1, 2]
    assert world.left() == []


def test_an_answer_that_got_lost_with_its_controller_is_found_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first zone is full, the second launches; the controller dies, and reads are late."""
    world.begin()
    world.rules.capacity["g6.xlarge", "us-east-1a"] = 0
    die_after_the_launch(world, monkeypatch)
    world.rules.capacity.clear()
    monkeypatch.setattr("orchestrator.aws.boxes.find_boxes", lambda *_, **__: [])
    world.controller().launch_all()
    monkeypatch.undo()
    assert [box.zone for box in world.instances()] == ["us-east-1b"]


@pytest.mark.parametrize("late", [False, True])
def test_the_jobs_of_a_box_that_nobody_ever_saw_are_cut_and_say_so(
    world: World, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    world.begin()
    die_after_the_launch(world, monkeypatch)
    world.says("running")
    world.forget()
    if late:
        world.clock.at += DAY
        world.controller().drive()
    else:
        world.controller().finish()
    assert (world.status()["state"], world.status()["reason"]) == (
        "cut",
        "its box ended: it ran while nobody watched",
    )


def test_an_attempt_that_lived_and_died_unseen_is_not_taken_for_a_living_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin()
    die_after_the_launch(world, monkeypatch)
    world.end(TAKEN)
    world.forget()
    drive(world, *[lambda: None] * 3, world.finishes)
    assert [box.attempt for box in world.instances()] == [2]
    assert world.money().keys() == {"one", "one#2"}
    assert world.left() == []
