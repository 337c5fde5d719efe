"""grailbio/reflow#29: a person's own credentials are handed to the worker, and expire there.

There: what the person who starts a job is logged in with is copied to the machine. It's a secret
in a place where many can read it, and it runs out in the middle of the job.
Here: a run is launched by somebody with an access key. Neither the user data, nor anything that
the run puts into the bucket, nor a tag holds a word of it: a box has its instance's role, no key.
"""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.aws.bucket import Bucket
from orchestrator.aws.session import Session
from orchestrator.run import RunRecord
from orchestrator.runner import Runner
from tests.orchestrator.runner_test import begun_for_real as begun
from tests.orchestrator.runner_test import clock, rules, runner, session

__all__ = ["begun", "clock", "own_keys", "rules", "runner", "session"]

OWN = {
    "AWS_ACCESS_KEY_ID": "AKIA" + "IOSFODNN7CANARY1",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYCANARYKEY2",
    "AWS_SESSION_TOKEN": "FwoGZXIvYXdzECANARYTOKEN3",
}
ANY_KEY_ID = re.compile(rb"(?<![A-Z0-9])(AKIA|ASIA)[A-Z0-9]{12,}")


@pytest.fixture
def own_keys(rules: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person is logged in with."""
    for name, value in OWN.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def instance(own_keys: None, runner: Runner, session: Session) -> Any:
    used = session.boto.get_credentials()
    assert used is not None
    assert used.access_key == OWN["AWS_ACCESS_KEY_ID"]
    runner.launch_all()
    (page,) = session.client("ec2").describe_instances()["Reservations"]
    return page["Instances"][0]


def stored(bucket: Bucket) -> Iterator[tuple[str, bytes]]:
    """Everything in the bucket; what is packed, unpacked."""
    for key, _ in bucket.keys(""):
        data = bucket.get(key) or b""
        yield key, data
        if key.endswith(".tar.gz"):
            with tarfile.open(fileobj=io.BytesIO(data)) as packed:
                for member in packed:
                    file = packed.extractfile(member)
                    yield f"{key}/{member.name}", file.read() if file else b""


def test_nothing_that_a_box_can_read_holds_a_persons_key(
    instance: Any, session: Session, begun: tuple[Bucket, RunRecord]
) -> None:
    answer = session.client("ec2").describe_instance_attribute(
        InstanceId=instance["InstanceId"], Attribute="userData"
    )
    texts = dict(stored(begun[0]))
    texts["user data"] = base64.b64decode(answer["UserData"]["Value"])
    texts["instance"] = json.dumps(instance, default=str).encode()
    assert any(key.endswith(".json") and "boxes/" in key for key in texts)
    for where, text in texts.items():
        for canary in OWN.values():
            assert canary.encode() not in text, where
        assert not ANY_KEY_ID.search(text), where
    assert b"AWS_ACCESS_KEY_ID=" not in texts["user data"]
    assert instance["IamInstanceProfile"]["Arn"].endswith(f"gpurun-{begun[1].run_id}-box")
