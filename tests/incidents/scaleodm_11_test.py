"""hotosm/ScaleODM#11: the machine is taken away during the final upload.

There: the results of a long job are half in the bucket when the machine goes, and what is there
looks like a result.
Here: a large model goes up in parts and the line breaks, four times, then the box dies for good.
Each time only the parts that are missing go up; nothing calls the job complete before the last of
them; and what a dead box left half-way is never named by anything.
"""

from __future__ import annotations

import os
from itertools import count

import pytest

from orchestrator.box import store as store_module
from orchestrator.box.connection import StoreDown
from tests.incidents.desks import cloud, shared_cloud, valve_desk, valves
from tests.orchestrator.box.desk import Desk
from tests.orchestrator.box.valve import Ask, ValveCloud, Which

__all__ = ["cloud", "shared_cloud", "valve_desk", "valves"]

MB = 1 << 20
PART, PARTS = 5 * MB, 5


@pytest.fixture
def desk(valve_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(store_module, "PART_BYTES", PART)
    monkeypatch.setattr(store_module, "STREAMS", 1)
    monkeypatch.setattr("orchestrator.box.parts.STREAMS", 1)
    desk = valve_desk
    desk.write("out/model.safetensors", os.urandom(MB) * 5 * PARTS)
    (desk.folder / "log.txt").write_bytes(b"trained\n")
    return desk


def parts_after(good: int) -> Which:
    """Uploads of parts, but for the next `good` ones."""
    seen = count(1)
    return lambda ask: _is_part(ask) and next(seen) > good


def _is_part(ask: Ask) -> bool:
    return ask["REQUEST_METHOD"] == "PUT" and "partNumber" in ask["QUERY_STRING"]


def sent_parts(valves: ValveCloud) -> int:
    return len([size for *_, size in valves.valve.seen if size >= PART])


def test_a_line_that_breaks_again_and_again_costs_no_part_twice(
    desk: Desk, valves: ValveCloud
) -> None:
    broken = 0
    for _ in range(PARTS - 1):
        with valves.valve.refuse(parts_after(1), "AccessDenied"), pytest.raises(StoreDown):
            desk.final()
        broken += 1
        assert desk.complete() == {}
        assert all("out/model.safetensors" not in desk.listed(seq) for seq in range(1, 9))
    assert desk.final().whole
    assert sent_parts(valves) == PARTS + broken  # each refused one went up once more
    assert desk.complete()["state"] == "done"
    seq = desk.complete()["status"]["manifest_seq"]
    assert desk.blob(seq, "out/model.safetensors") == (desk.out / "model.safetensors").read_bytes()


def test_what_a_dead_box_left_half_way_is_no_result(desk: Desk, valves: ValveCloud) -> None:
    with valves.valve.refuse(parts_after(3), "AccessDenied"), pytest.raises(StoreDown):
        desk.final()  # and this was the last that was heard of it
    assert desk.listed(1) == {"log.txt"}
    assert desk.complete() == {}
    assert not desk.manifest(1)["final"]
    assert [size for _, size in desk.store.keys("jobs/train/blobs/")] == [len(b"trained\n")]
