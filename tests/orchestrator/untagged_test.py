"""A box whose tags are gone, as EC2 takes them off what has ended before it forgets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import start
from orchestrator.localcloud.strict import StrictRules, strict_aws
from orchestrator.payload import Payload
from orchestrator.run import EventKind
from tests.orchestrator.controllers import HAND, Clock, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """What boxes would fetch isn't the subject, and slow to pack."""
    payload = Payload(tmp_path / "payload.tar.gz", "0" * 64)
    payload.path.write_bytes(b"")
    monkeypatch.setattr(start, "build_payload", lambda *_, **__: payload)
    clock = Clock()
    with strict_aws(StrictRules(now=clock.true)) as rules:
        yield World(rules, clock, tmp_path, {})


def untag(world: World) -> str:
    """No look-up by tag finds the run's box any more; its id."""
    (box,) = world.instances()
    tags: list[Any] = [{"Key": f"gpurun:{name}"} for name in ("run", "box", "attempt")]
    world.session.client("ec2").delete_tags(Resources=[box.instance_id], Tags=tags)
    assert world.instances() == []
    return box.instance_id


def test_what_a_person_ended_is_not_launched_again_though_nobody_saw_it_end(world: World) -> None:
    world.begin()
    runner = world.controller()
    runner.launch_all()
    world.end(HAND)
    untag(world)
    runner.drive()
    assert len(world.events(EventKind.LAUNCHED)) == 1
    assert world.status()["reason"] == f"its box ended: {HAND}"


def test_a_box_that_lives_without_tags_is_seen_by_the_id_that_was_noted(world: World) -> None:
    world.begin()
    runner = world.controller()
    runner.launch_all()
    instance_id = untag(world)
    assert [(box.instance_id, box.alive) for box in runner.instances()] == [(instance_id, True)]
    assert [(box.name, box.state) for box in runner.look().boxes] == [("one", "running")]
