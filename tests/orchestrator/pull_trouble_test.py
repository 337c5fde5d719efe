"""Pulling onto a disk that is full, and out of a bucket that isn't there any more."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from orchestrator.aws.bucket import Bucket, ensure_bucket
from orchestrator.aws.session import Session
from orchestrator.errors import ApiError
from orchestrator.localcloud.strict import StrictRules, strict_aws
from orchestrator.results import pull

RUN = "run-261129-120000-abcd"
ROOT = Path(__file__).parents[2]
SCRIPT = """
import subprocess, sys
from pathlib import Path
from orchestrator.errors import FolderError
from orchestrator.results import State, pull
sys.path.insert(0, sys.argv[2])
from results_test import RUN, Objects, tree

to, data = Path(sys.argv[1]), bytes(range(256)) * 2000
bucket = Objects()
bucket.commit("train", {"out/weights": data})
try:
    pull(bucket, RUN, to, ["train"])
except FolderError as error:
    assert "No space left" in error.message, error
    assert "Make room and try again" in error.hint, error
else:
    raise AssertionError("the disk was not full")
assert not (to / RUN / "train" / "out" / "weights").exists()
subprocess.run(["mount", "-o", "remount,size=4m", str(to)], check=True)
assert pull(bucket, RUN, to, ["train"]).state is State.COMPLETE
assert tree(to / RUN) == {"train/out/weights": data}
starts = [start for _, start in bucket.asked]
assert starts[0] == 0 and starts[-1] > 100_000, starts
"""


def in_a_namespace(*words: str) -> list[str]:
    return [shutil.which("unshare") or "true", "--map-root-user", "--mount", *words]


def may_mount() -> bool:
    """Whether this user may mount something in a namespace of its own."""
    words = in_a_namespace("mount", "-t", "tmpfs", "tmpfs", "/mnt")
    return words[0] != "true" and not subprocess.run(words, capture_output=True).returncode


@pytest.mark.skipif(not may_mount(), reason="no mount namespace for this user")
def test_a_disk_that_is_full_is_told_and_the_next_pull_goes_on_from_there(tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o size=300k tmpfs {tmp_path} && exec "$@"'
    words = in_a_namespace("sh", "-c", mount, "sh", sys.executable, "-c", SCRIPT)
    done = subprocess.run(
        [*words, str(tmp_path), str(Path(__file__).parent)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with strict_aws(StrictRules()):
        session = Session("aws", "us-east-1", "123456789012", boto=boto3.Session())
        yield ensure_bucket(session)


def test_a_bucket_that_was_deleted_is_named_not_taken_for_a_run_without_results(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.session.client("s3").delete_bucket(Bucket=bucket.name)
    with pytest.raises(ApiError, match="NoSuchBucket"):
        pull(bucket, RUN, tmp_path, ["train"])
