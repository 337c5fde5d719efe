"""justrach/nanobrew#200, cyrusagents/cyrus PR#1444 and trustedsec/spoonmap#31: half a state file.

There: the program dies while it writes its state. What is left can't be parsed, and the command
that would clean up needs it as well.
Here: the run's record, an entry of its log and this machine's own copy are cut at every byte,
emptied and filled with garbage. Each is told as damage and nothing worse, and `gpurun down` ends
the run by its tags alone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator import kept
from orchestrator.aws.bucket import Bucket
from orchestrator.errors import RunDamaged
from orchestrator.run import RunLog, read_record, read_ssh_secrets
from orchestrator.settings import Settings
from tests.faults.life import BUCKET
from tests.incidents.scene import Scene

GARBAGE = [b"", b"\0" * 64, b"\xff\xfe{}", b"null", b"[" * 5000, b'{"seq": {}}']


def read_all(bucket: Bucket, run_id: str) -> None:
    read_record(bucket, run_id)
    RunLog(bucket, run_id).read()


@pytest.mark.parametrize("name", ["run.json", "events/000002.json"])
@pytest.mark.parametrize("data", [*GARBAGE, None], ids=lambda data: repr(data)[:9])
def test_down_ends_a_run_whose_state_is_damaged(
    scene: Scene, down: Callable[[], None], name: str, data: bytes | None
) -> None:
    scene.launched()
    objects = scene.world.cloud.objects(BUCKET)
    key = f"runs/{scene.run_id}/{name}"
    objects[key] = objects[key][: len(objects[key]) // 2] if data is None else data
    down()
    assert scene.alive() == []
    assert scene.left() == []


@pytest.mark.parametrize("name", ["run.json", "events/000002.json"])
def test_state_that_is_cut_at_any_byte_is_damage_and_nothing_worse(
    scene: Scene, name: str
) -> None:
    bucket = scene.launched().bucket
    objects = scene.world.cloud.objects(BUCKET)
    key = f"runs/{scene.run_id}/{name}"
    whole = objects[key]
    for length in range(len(whole)):
        objects[key] = whole[:length]
        with pytest.raises(RunDamaged, match="gpurun down"):
            read_all(bucket, scene.run_id)


def test_this_machine_s_copy_may_be_cut_at_any_byte(
    scene: Scene, down: Callable[[], None]
) -> None:
    runner, home = scene.launched(), Settings().home
    kept.keep(home, runner.record, read_ssh_secrets(runner.bucket, scene.run_id))
    path = home / "runs" / scene.run_id / "run.json"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert kept.recall(home, scene.run_id) is None
    down()
    assert scene.alive() == []
    assert scene.left() == []
    assert not path.parent.exists()
