"""Launching: what is asked of EC2, never two of one box, and what a refusal means."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any, NoReturn

import pytest
from botocore.exceptions import ConnectionClosedError

from orchestrator.aws.boxes import (
    BoxRecord,
    client_token,
    find_boxes,
    launch,
    run_request,
    terminate,
    wait_terminated,
)
from orchestrator.aws.tags import as_map
from orchestrator.errors import (
    ApiError,
    CapacityError,
    CredentialsError,
    LaunchError,
    QuotaError,
)
from orchestrator.localcloud.strict import StrictRules
from tests.fake_clock import FakeClock

from .account import RUN, Recorder, Stack

L4, L40S = "g6.4xlarge", "g6e.4xlarge"


def instance(stack: Stack, instance_id: str) -> Any:
    answer = stack.session.client("ec2").describe_instances(InstanceIds=[instance_id])
    return answer["Reservations"][0]["Instances"][0]


def test_the_request_is_exactly_this(stack: Stack, record: Callable[[Any, str], Recorder]) -> None:
    launches = record("ec2", "RunInstances")
    stack.launch()
    (asked,) = launches.calls
    specs = asked.pop("TagSpecifications")
    assert asked.pop("UserData") == "#!/bin/bash\n"
    assert asked == {
        "ImageId": stack.ami.id,
        "InstanceType": L4,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": client_token(stack.request(), L4, "us-east-1a"),
        "KeyName": f"gpurun-{RUN}",
        "IamInstanceProfile": {"Name": f"gpurun-{RUN}-box"},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "enabled",
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": stack.ami.root_device,
                "Ebs": {
                    "VolumeSize": 200,
                    "VolumeType": "gp3",
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "SubnetId": stack.net.subnets["us-east-1a"],
                "Groups": [stack.net.group_id],
                "AssociatePublicIpAddress": True,
                "DeleteOnTermination": True,
            }
        ],
    }
    assert [s["ResourceType"] for s in specs] == ["instance", "volume", "network-interface"]
    for spec in specs:
        assert as_map(spec["Tags"]) == {
            "gpurun:run": RUN,
            "gpurun:role": "box",
            "gpurun:box": "l4",
            "gpurun:attempt": "1",
            "gpurun:owner": "ann@desk",
            "gpurun:expires-at": "2026-11-29T22:00:00Z",
            "gpurun:bucket": "gpurun-123456789012-us-east-1",
            "gpurun:price-per-hour": "1.3232",
            "Name": f"gpurun-{RUN}-l4",
            **({"gpurun:guard": f"{RUN}/l4"} if spec["ResourceType"] == "instance" else {}),
        }


def test_user_data_arrives_as_it_was_given(stack: Stack) -> None:
    box = stack.launch(user_data="#!/bin/bash\necho 'ü' \"$x\"\n")
    answer = stack.session.client("ec2").describe_instance_attribute(
        InstanceId=box.instance_id, Attribute="userData"
    )
    assert base64.b64decode(answer["UserData"]["Value"]).decode() == (
        "#!/bin/bash\necho 'ü' \"$x\"\n"
    )


def test_the_box_comes_up_with_address_and_price(stack: Stack, clock: FakeClock) -> None:
    stack.launch()
    (box,) = find_boxes(stack.session, RUN)
    assert (box.box, box.state, box.alive, box.zone) == ("l4", "running", True, "us-east-1a")
    assert box.ip
    assert box.ssh_port == 22
    assert box.price_usd_per_hour == Decimal("1.3232")
    assert box.ended_at is None
    assert box.reason == ""


def test_the_root_volume_is_never_smaller_than_its_snapshot(stack: Stack) -> None:
    request = run_request(stack.request(disk_gb=10), stack.net, L4, "us-east-1a")
    assert request["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == stack.ami.snapshot_gb == 75


def test_the_token_says_run_box_attempt_zone_and_type(stack: Stack) -> None:
    first = stack.request()
    tokens = {
        client_token(first, L4, "us-east-1a"),
        client_token(first, L4, "us-east-1b"),
        client_token(first, L40S, "us-east-1a"),
        client_token(stack.request(box="l40s"), L4, "us-east-1a"),
        client_token(stack.request(attempt=2), L4, "us-east-1a"),
    }
    assert len(tokens) == 5
    assert {len(token) for token in tokens} == {64}
    assert client_token(stack.request(disk_gb=500), L4, "us-east-1a") in tokens


def test_a_box_that_lives_is_not_launched_again(
    stack: Stack, record: Callable[[Any, str], Recorder]
) -> None:
    first = stack.launch()
    launches = record("ec2", "RunInstances")
    assert stack.launch(attempt=2).instance_id == first.instance_id
    assert launches.calls == []


def test_an_instance_that_reads_do_not_show_yet_is_not_made_twice(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stack.launch()
    monkeypatch.setattr("orchestrator.aws.boxes.find_boxes", lambda *_: [])
    assert stack.launch().instance_id == first.instance_id
    monkeypatch.undo()
    assert len(find_boxes(stack.session, RUN)) == 1


def test_an_instance_of_another_version_is_waited_for_as_long_as_ec2_may_hide_it(
    stack: Stack, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is taken, with other user data: nobody may call that attempt ended."""
    first, real = stack.launch(), find_boxes
    shown_at = clock.now() + timedelta(minutes=4)

    def hidden(*asked: Any) -> list[BoxRecord]:
        return real(*asked) if clock.now() >= shown_at else []

    monkeypatch.setattr("orchestrator.aws.boxes.find_boxes", hidden)
    assert stack.launch(user_data="#!/bin/sh\ntrue\n").instance_id == first.instance_id


def test_an_answer_that_got_lost_does_not_make_a_second_instance(stack: Stack) -> None:
    events = stack.session.client("ec2", fast=True).meta.events
    lost: list[str] = []

    def lose_once(**_: Any) -> None:
        if not lost:
            lost.append("answer")
            raise ConnectionClosedError(endpoint_url="https://ec2")

    events.register("after-call.ec2.RunInstances", lose_once)
    try:
        box = stack.launch()
    finally:
        events.unregister("after-call.ec2.RunInstances", lose_once)
    assert lost
    assert [b.instance_id for b in find_boxes(stack.session, RUN)] == [box.instance_id]


def test_no_answer_at_all_ends_in_bounded_time_without_trying_elsewhere(
    stack: Stack, clock: FakeClock, record: Callable[[Any, str], Recorder]
) -> None:
    launches, before = record("ec2", "RunInstances"), clock.waited_s
    events = stack.session.client("ec2", fast=True).meta.events

    def drop(**_: Any) -> NoReturn:
        raise ConnectionClosedError(endpoint_url="https://ec2")

    events.register_first("before-send.ec2.RunInstances", drop)
    try:
        with pytest.raises(ApiError, match="doesn't answer"):
            stack.launch()
    finally:
        events.unregister("before-send.ec2.RunInstances", drop)
    assert {call["ClientToken"] for call in launches.calls} == {
        client_token(stack.request(), L4, "us-east-1a")
    }
    assert clock.waited_s - before <= 61


def test_of_two_instances_of_a_box_every_controller_keeps_the_same(stack: Stack) -> None:
    first = stack.launch()
    twin = run_request(stack.request(attempt=2), stack.net, L4, "us-east-1b")
    stack.session.client("ec2").run_instances(**twin)
    both = find_boxes(stack.session, RUN)
    assert len(both) == 2
    kept = stack.launch()
    assert kept == min(both, key=lambda box: (box.launched_at, box.instance_id))
    assert first.box == kept.box
    alive = [box.instance_id for box in find_boxes(stack.session, RUN) if box.alive]
    assert alive == [kept.instance_id]
    assert stack.launch().instance_id == kept.instance_id


def test_an_attempt_that_ended_is_not_taken_for_a_new_box(stack: Stack) -> None:
    first = stack.launch()
    terminate(stack.session, [first.instance_id])
    with pytest.raises(LaunchError, match="has ended") as told:
        stack.launch()
    assert "next attempt" in told.value.hint
    assert stack.launch(attempt=2).instance_id != first.instance_id


def test_without_room_the_next_zone_is_tried(stack: Stack, rules: StrictRules) -> None:
    rules.capacity[L4, "us-east-1a"] = 0
    assert stack.launch().zone == "us-east-1b"


def test_without_room_anywhere_the_fallback_is_tried(stack: Stack, rules: StrictRules) -> None:
    for zone in stack.net.subnets:
        rules.capacity[L40S, zone] = 0
    box = stack.launch(instance_types=(L40S, L4))
    assert (box.instance_type, box.zone) == (L4, "us-east-1a")
    assert box.price_usd_per_hour == Decimal("1.3232")


def test_without_any_room_every_try_is_told(stack: Stack, rules: StrictRules) -> None:
    for zone in stack.net.subnets:
        rules.capacity[L4, zone] = rules.capacity[L40S, zone] = 0
    with pytest.raises(CapacityError) as told:
        stack.launch(instance_types=(L40S, L4))
    for zone in stack.net.subnets:
        assert f"{L40S} in {zone}" in told.value.message
        assert f"{L4} in {zone}" in told.value.message
    assert find_boxes(stack.session, RUN) == []


def test_a_quota_that_is_full_is_told_from_a_zone_that_is_full(
    stack: Stack, rules: StrictRules, record: Callable[[Any, str], Recorder]
) -> None:
    rules.vcpu_limits["L-DB2E81BA"] = 8
    launches = record("ec2", "RunInstances")
    with pytest.raises(QuotaError, match="quota has no room for l4"):
        stack.launch()
    assert len(launches.calls) == 1


def test_a_full_quota_says_what_is_needed_and_what_there_is(
    stack: Stack, rules: StrictRules
) -> None:
    rules.vcpu_limits["L-DB2E81BA"] = 24
    stack.launch("first")
    with pytest.raises(QuotaError, match=r"16 vCPUs of L-DB2E81BA \(24 allowed, 16 in use\)"):
        stack.launch("second", quota_code="L-DB2E81BA", vcpus=16)


def test_a_spot_box_is_asked_for_once_and_at_most_at_the_on_demand_price(
    stack: Stack, record: Callable[[Any, str], Recorder]
) -> None:
    launches = record("ec2", "RunInstances")
    box = stack.launch(spot=True)
    assert launches.calls[0]["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {
            "SpotInstanceType": "one-time",
            "InstanceInterruptionBehavior": "terminate",
            "MaxPrice": "1.3232",
        },
    }
    assert instance(stack, box.instance_id)["InstanceLifecycle"] == "spot"


def test_a_spot_box_counts_for_the_spot_quota_alone(stack: Stack, rules: StrictRules) -> None:
    rules.vcpu_limits |= {"L-DB2E81BA": 0, "L-3819A6DF": 16}
    assert stack.launch("one", spot=True).alive
    with pytest.raises(QuotaError, match="MaxSpotInstanceCountExceeded"):
        stack.launch("two", spot=True)


def test_each_try_is_told_before_it_is_made(stack: Stack, rules: StrictRules) -> None:
    rules.capacity[L4, "us-east-1a"] = 0
    tries: list[tuple[str, str]] = []
    request = stack.request()
    launch(stack.session, request, stack.net, before=lambda *place: tries.append(place))
    assert tries == [(L4, "us-east-1a"), (L4, "us-east-1b")]


def test_a_lost_answer_in_a_later_zone_is_asked_for_there_first(
    stack: Stack, rules: StrictRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first zone was full; its answer from the second got lost, and reads are late."""
    rules.capacity[L4, "us-east-1a"] = 0
    first = stack.launch()
    rules.capacity.clear()
    monkeypatch.setattr("orchestrator.aws.boxes.find_boxes", lambda *_: [])
    again = launch(stack.session, stack.request(), stack.net, last_try=(L4, "us-east-1b"))
    assert again.instance_id == first.instance_id
    monkeypatch.undo()
    assert len(find_boxes(stack.session, RUN)) == 1


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Throttling"])
def test_a_throttle_is_waited_out_within_a_minute(
    stack: Stack, clock: FakeClock, record: Callable[[Any, str], Recorder], code: str
) -> None:
    launches = record("ec2", "RunInstances")
    events = stack.session.client("ec2", fast=True).meta.events

    def throttle(http_response: Any, parsed: Any, **_: Any) -> None:
        parsed["Error"] = {"Code": code, "Message": "slower"}
        http_response.status_code = 503

    events.register("after-call.ec2.RunInstances", throttle)
    before = clock.waited_s
    try:
        with pytest.raises(ApiError, match=code):
            stack.launch()
    finally:
        events.unregister("after-call.ec2.RunInstances", throttle)
    assert 3 < len(launches.calls) < 20
    assert clock.waited_s - before <= 61


def test_a_smaller_fallback_may_fit_the_quota(stack: Stack, rules: StrictRules) -> None:
    rules.vcpu_limits["L-DB2E81BA"] = 8
    box = stack.launch(
        instance_types=(L4, "g6.2xlarge"),
        price_by_type={L4: Decimal("1.3232"), "g6.2xlarge": Decimal("0.9776")},
    )
    assert box.instance_type == "g6.2xlarge"


def test_a_profile_that_ec2_does_not_know_yet_is_waited_for(
    stack: Stack, rules: StrictRules, clock: FakeClock
) -> None:
    rules.profile_delay_s = 12
    assert stack.launch().alive
    assert 12 <= clock.waited_s < 30


def test_a_profile_that_never_appears_is_given_up(stack: Stack, clock: FakeClock) -> None:
    with pytest.raises(LaunchError, match="Invalid IAM Instance Profile"):
        stack.launch(profile="gpurun-nobody")
    assert clock.waited_s <= 61


def test_what_another_zone_can_not_cure_is_told_at_once(
    stack: Stack, clock: FakeClock, record: Callable[[Any, str], Recorder]
) -> None:
    launches = record("ec2", "RunInstances")
    unknown = stack.ami.__class__("ami-0123456789abcdef0", "x", "/dev/sda1", 8)
    with pytest.raises(LaunchError, match=r"InvalidAMIID\.NotFound"):
        stack.launch(ami=unknown)
    assert len(launches.calls) == 1
    assert clock.waited_s == 0


def test_user_data_over_the_limit_is_refused_before_any_call(
    stack: Stack, record: Callable[[Any, str], Recorder]
) -> None:
    launches = record("ec2", "RunInstances")
    with pytest.raises(LaunchError, match="16385 bytes"):
        stack.launch(user_data="ü" * 8192 + "x")
    assert launches.calls == []
    assert stack.launch(user_data="x" * 16_384).alive


def test_refused_credentials_are_not_a_launch_that_failed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = stack.session.client("ec2", fast=True).meta.events

    def refuse(http_response: Any, parsed: Any, **_: Any) -> None:
        parsed["Error"] = {"Code": "ExpiredToken", "Message": "old"}
        http_response.status_code = 400

    events.register("after-call.ec2.RunInstances", refuse)
    try:
        with pytest.raises(CredentialsError):
            stack.launch()
    finally:
        events.unregister("after-call.ec2.RunInstances", refuse)


def test_an_end_is_dated_and_has_its_reason(
    stack: Stack, rules: StrictRules, clock: FakeClock
) -> None:
    rules.shutdown_s = 60
    box = stack.launch()
    terminate(stack.session, [box.instance_id])
    (ending,) = find_boxes(stack.session, RUN)
    assert (ending.state, ending.alive) == ("shutting-down", False)
    assert ending.reason == "Client.UserInitiatedShutdown"
    assert wait_terminated(stack.session, [box.instance_id], 600) == ()
    assert 60 <= clock.waited_s < 90
    (ended,) = find_boxes(stack.session, RUN)
    assert ended.state == "terminated"
    assert ended.ended_at is not None
    assert ended.ended_at.utcoffset() == timedelta(0)


def test_waiting_for_an_end_has_an_end(stack: Stack, clock: FakeClock) -> None:
    box = stack.launch()
    assert wait_terminated(stack.session, [box.instance_id], 45) == (box.instance_id,)
    assert clock.waited_s == pytest.approx(45)


def test_one_unknown_id_does_not_save_the_others(stack: Stack) -> None:
    box = stack.launch()
    terminate(stack.session, ["i-0123456789abcdef0", box.instance_id])
    assert not find_boxes(stack.session, RUN)[0].alive
    terminate(stack.session, ["i-0123456789abcdef0"])
    terminate(stack.session, [])
    assert wait_terminated(stack.session, ["i-0123456789abcdef0"], 10) == ()


def test_protection_from_termination_does_not_keep_a_box(stack: Stack) -> None:
    box = stack.launch()
    stack.session.client("ec2").modify_instance_attribute(
        InstanceId=box.instance_id, DisableApiTermination={"Value": True}
    )
    terminate(stack.session, [box.instance_id])
    assert not find_boxes(stack.session, RUN)[0].alive
