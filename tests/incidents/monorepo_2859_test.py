"""commonwarexyz/monorepo#2859 and skypilot-org/skypilot PR#975: a refusal taken for another one.

There: us-east-1e doesn't offer the type, and the launch fails instead of trying the next zone; a
full vCPU quota is tried again and again, as if room would come.
Here: each kind of refusal has its own answer. No capacity moves to the next zone, then type; a
full quota to the next type, and the same is never asked again; credentials stop all at once; a
throttle is waited out with the same token. Whatever ends a launch leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from orchestrator.errors import CapacityError, CredentialsError, QuotaError
from tests.faults.cloud.client import Call
from tests.faults.wire import refusal
from tests.incidents.scene import ONE_BOX, Scene, opened

FIRST, SECOND = "g6.xlarge", "g6.2xlarge"
TWO_TYPES = ONE_BOX.replace("instance: g6.xlarge", f"instance: {FIRST}, fallbacks: [{SECOND}]")
Try = tuple[str, str, str]
"""Type, subnet and token of one RunInstances."""


@pytest.fixture
def two_types() -> Iterator[Scene]:
    with opened(TWO_TYPES) as scene:
        scene.world.rules.profile_delay_s = 0.0  # a wait of its own, and not the subject
        yield scene


def refusing(scene: Scene, code: str, which: Callable[[Try, int], bool]) -> list[Try]:
    """Launches for which that holds are refused; all that were tried."""
    tries: list[Try] = []

    def look(call: Call) -> None:
        if call.operation == "run_instances":
            asked = call.parameters
            subnet = asked["NetworkInterfaces"][0]["SubnetId"]
            tries.append((asked["InstanceType"], subnet, asked["ClientToken"]))
            if which(tries[-1], len(tries)):
                raise refusal("RunInstances", code, 500 if code.startswith("Insuff") else 400)

    scene.at_call = look
    return tries


@pytest.mark.parametrize("code", ["Unsupported", "InsufficientInstanceCapacity"])
def test_a_zone_without_the_type_or_room_is_left_for_the_next(two_types: Scene, code: str) -> None:
    tries = refusing(two_types, code, lambda _, nth: nth == 1)
    two_types.launched()
    assert [kind for kind, *_ in tries] == [FIRST, FIRST]
    assert tries[0][1] != tries[1][1]
    assert len(two_types.alive()) == 1


def test_without_room_in_any_zone_the_fallback_is_launched(two_types: Scene) -> None:
    tries = refusing(two_types, "Unsupported", lambda one, _: one[0] == FIRST)
    two_types.launched()
    assert len({one for one in tries if one[0] == FIRST}) == len(tries) - 1 > 1
    assert [box.type for box in two_types.alive()] == [SECOND]


def test_a_full_quota_is_asked_once_for_each_type_and_never_again(two_types: Scene) -> None:
    tries = refusing(two_types, "VcpuLimitExceeded", lambda *_: True)
    began = two_types.world.time.now()
    with pytest.raises(QuotaError):
        two_types.launched()
    assert [kind for kind, *_ in tries] == [FIRST, SECOND]
    assert (two_types.world.time.now() - began).total_seconds() < 300
    assert two_types.left() == []


def test_a_quota_without_room_for_the_large_type_may_have_it_for_the_small(
    two_types: Scene,
) -> None:
    tries = refusing(two_types, "VcpuLimitExceeded", lambda one, _: one[0] == FIRST)
    two_types.launched()
    assert [kind for kind, *_ in tries] == [FIRST, SECOND]


@pytest.mark.parametrize("code", ["AuthFailure", "ExpiredToken"])
def test_refused_credentials_stop_everything_at_the_first_try(two_types: Scene, code: str) -> None:
    tries = refusing(two_types, code, lambda *_: True)
    with pytest.raises(CredentialsError):
        two_types.launched()
    assert len(tries) == 1
    assert two_types.instances() == []


def test_a_throttle_is_waited_out_by_the_same_request(two_types: Scene) -> None:
    tries = refusing(two_types, "RequestLimitExceeded", lambda _, nth: nth <= 5)
    two_types.launched()
    assert (len(tries), len(set(tries))) == (6, 1)
    assert len(two_types.instances()) == 1


def test_no_room_at_all_is_told_with_every_try_and_leaves_nothing(two_types: Scene) -> None:
    tries = refusing(two_types, "InsufficientInstanceCapacity", lambda *_: True)
    with pytest.raises(CapacityError) as told:
        two_types.launched()
    assert told.value.message.count("\n") == len(set(tries)) == len(tries)
    assert two_types.left() == []
