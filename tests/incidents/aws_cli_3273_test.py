"""aws/aws-cli#3273, #1074 and #406: a changed file isn't uploaded, as it looks unchanged.

There: a copy to S3 compares size and time only. A file that is rewritten with the same length, and
with an older or the same time, is taken for the one that is there already.
Here: metrics are rewritten with as many bytes and an older mtime, then with the very same mtime in
the very same inode. Each version is what the next manifest names.
"""

from __future__ import annotations

import os

import pytest

from tests.incidents.desks import cloud, desk, shared_cloud
from tests.orchestrator.box.desk import Desk

__all__ = ["cloud", "desk", "shared_cloud"]

OLD, NEW, NEWER = b'{"reward": 0.1}', b'{"reward": 0.2}', b'{"reward": 0.3}'
NAME = "out/metrics.json"


def test_a_rewrite_of_the_same_length_and_an_older_time_is_uploaded(desk: Desk) -> None:
    desk.write(NAME, OLD, age_s=60)
    desk.sync()
    desk.write(NAME, NEW, age_s=9000)
    desk.sync()
    assert [desk.blob(seq, NAME) for seq in (1, 2)] == [OLD, NEW]


@pytest.mark.parametrize("final", [False, True])
def test_a_rewrite_in_place_that_sets_its_time_back_is_uploaded(desk: Desk, final: bool) -> None:
    path = desk.write(NAME, NEW)
    before = path.stat()
    desk.sync()
    path.write_bytes(NEWER)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )
    desk.sync(final=final, outcome="done" if final else "")
    assert desk.blob(2, NAME) == NEWER
