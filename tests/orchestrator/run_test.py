"""A run's id, and a log that two controllers can write without losing an entry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import cast

import pytest

from orchestrator.aws.bucket import Bucket
from orchestrator.errors import RunDamaged, RunNotFound
from orchestrator.run import EventKind, RunLog, check_run_id, has, last, new_run_id

NOW = datetime(2026, 11, 29, 19, 30, 45, tzinfo=UTC)


class Shelf:
    """Objects in memory, with S3's conditional put."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        if if_absent and key in self.objects:
            return self.objects[key] == data
        self.objects[key] = data
        return True

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def keys(self, prefix: str) -> Iterator[tuple[str, int]]:
        for key in sorted(self.objects):
            if key.startswith(prefix):
                yield key, len(self.objects[key])


@pytest.fixture
def bucket() -> Bucket:
    return cast(Bucket, Shelf())


def test_a_run_id_says_what_and_when() -> None:
    run_id = new_run_id("rehearsal", NOW)
    assert run_id.startswith("rehearsal-261129-193045-")
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize(
    "wrong", ["", "../x", "rehearsal", "x'y-261129-193045-abcd", "a-261129-193045-ab1d", "a\n"]
)
def test_what_is_no_run_id_never_becomes_part_of_a_key(wrong: str) -> None:
    with pytest.raises(RunNotFound):
        check_run_id(wrong)


def test_two_controllers_never_overwrite_each_other(bucket: Bucket) -> None:
    one, two = RunLog(bucket, "r"), RunLog(bucket, "r")
    one.append(EventKind.RESERVED, NOW, box="a", usd=Decimal("1.50"))
    two._events = []  # as if it had read before the other wrote
    two.append(EventKind.LAUNCHING, NOW, box="a")
    assert [(e.seq, e.kind) for e in RunLog(bucket, "r").read()] == [
        (1, EventKind.RESERVED),
        (2, EventKind.LAUNCHING),
    ]


def test_a_number_that_was_taken_meanwhile_is_passed_over(bucket: Bucket) -> None:
    slow = RunLog(bucket, "r")
    real_read = slow.read
    slow.read = lambda: []  # type: ignore[method-assign]  # its view is older than the other's entry
    RunLog(bucket, "r").append(EventKind.BUILDING, NOW)
    assert slow.append(EventKind.LAUNCHING, NOW, box="a").seq == 2
    assert len(real_read()) == 2


def test_the_log_answers_for_one_box(bucket: Bucket) -> None:
    log = RunLog(bucket, "r")
    log.append(EventKind.LAUNCHED, NOW, box="a", instance_id="i-1")
    log.append(EventKind.LAUNCHED, NOW, box="b", instance_id="i-2")
    events = log.read()
    assert has(events, EventKind.LAUNCHED, "a")
    assert not has(events, EventKind.ENDED, "a")
    found = last(events, EventKind.LAUNCHED, "b")
    assert found is not None
    assert found.instance_id == "i-2"


def test_an_entry_that_cant_be_read_is_named_with_the_command_that_needs_none(
    bucket: Bucket,
) -> None:
    RunLog(bucket, "r").append(EventKind.BUILDING, NOW)
    bucket.put("runs/r/events/notes.json", b"not an entry")
    assert len(RunLog(bucket, "r").read()) == 1
    bucket.put("runs/r/events/000002.json", b'{"seq')
    with pytest.raises(RunDamaged, match=r"events/000002\.json") as told:
        RunLog(bucket, "r").read()
    assert "gpurun down r" in told.value.hint
