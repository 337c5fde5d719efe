"""A real local cloud in a process of its own, for the tests of this folder."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from orchestrator.localcloud import bubblewrap, process
from orchestrator.localcloud.rules.images import IMAGES, image_id
from orchestrator.localcloud.state import CloudState

REGION = "us-east-1"
AMI = image_id(next(iter(IMAGES)), REGION)
BUCKET = "gpurun-123456789012-us-east-1"
RUN_PREFIX = f"arn:aws:s3:::{BUCKET}/runs/r1/*"
BOX_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": ["s3:PutObject", "s3:GetObject"], "Resource": RUN_PREFIX}
    ],
}
# What user data of these tests may call: metadata and S3 with nothing but Python itself.
PRELUDE = """#!/bin/bash
cat > /tmp/box.py <<'PYTHON'
import json, os, sys, urllib.error, urllib.request
IMDS = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254/")
def ask(url, method="GET", data=None, **headers):
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()
def status(url, method="GET", data=None, **headers):
    try:
        ask(url, method, data, **headers)
        return 200
    except urllib.error.HTTPError as refused:
        return refused.code
def token():
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    return {"X-aws-ec2-metadata-token": ask(IMDS + "latest/api/token", "PUT", **ttl).decode()}
def metadata(path):
    return ask(IMDS + "latest/" + path, **token()).decode()
def metadata_status(path):
    return status(IMDS + "latest/" + path, **token())
def signed():
    role = metadata("meta-data/iam/security-credentials/")
    key = json.loads(metadata("meta-data/iam/security-credentials/" + role))["AccessKeyId"]
    scope = f"{key}/20260101/us-east-1/s3/aws4_request"
    return {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, Signature=0"}
def s3(method, key, data=None):
    url = f"{os.environ['AWS_ENDPOINT_URL']}/gpurun-123456789012-us-east-1/{key}"
    return status(url, method, data, **signed())
def report(**facts):
    assert s3("PUT", "runs/r1/report.json", json.dumps(facts).encode()) == 200
PYTHON
cd /tmp
"""


def until(look: Callable[[], Any], seconds: float = 30) -> Any:
    """What `look` finds, as soon as it finds something; fails after a bounded wait."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing found in {seconds:g} s")


class LocalCloud:
    """One running cloud and clients of it."""

    bucket = BUCKET
    prelude = PRELUDE
    until = staticmethod(until)

    def __init__(self, home: Path, state: CloudState) -> None:
        self.home, self.state = home, state
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            make: Any = boto3.client  # the stubs take no name that is known only when it runs
            self._clients[service] = make(
                service,
                region_name=REGION,
                endpoint_url=self.state.url,
                aws_access_key_id="testing",
                aws_secret_access_key="testing",
                config=Config(proxies={}, s3={"addressing_style": "path"}),
            )
        return self._clients[service]

    @property
    def ec2(self) -> Any:
        return self.client("ec2")

    def launch(self, script: str, *, run: str = "r1", prelude: str = PRELUDE, **extra: Any) -> str:
        tags = [{"Key": "gpurun:run", "Value": run}, {"Key": "gpurun:box", "Value": "b"}]
        spec = {
            "ImageId": AMI,
            "InstanceType": "g6.xlarge",
            "MinCount": 1,
            "MaxCount": 1,
            "UserData": prelude + script,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "IamInstanceProfile": {"Name": "box"},
            "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
        }
        made = self.ec2.run_instances(**{**spec, **extra})
        return str(made["Instances"][0]["InstanceId"])

    def look(self, instance_id: str) -> dict[str, Any]:
        found = self.ec2.describe_instances(InstanceIds=[instance_id])
        return dict(found["Reservations"][0]["Instances"][0])

    def is_in(self, instance_id: str, state: str) -> bool:
        return bool(self.look(instance_id)["State"]["Name"] == state)

    def wait(self, instance_id: str, state: str, seconds: float = 30) -> dict[str, Any]:
        try:
            until(lambda: self.is_in(instance_id, state), seconds)
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}: {self.console(instance_id)}") from None
        return self.look(instance_id)

    def console(self, instance_id: str) -> str:
        return str(self.ec2.get_console_output(InstanceId=instance_id)["Output"])

    def wait_for_output(self, instance_id: str, text: str) -> str:
        return str(until(lambda: text in (c := self.console(instance_id)) and c))

    def terminate(self, instance_id: str) -> dict[str, Any]:
        answer = self.ec2.terminate_instances(InstanceIds=[instance_id])
        return dict(answer["TerminatingInstances"][0])

    def keys(self, prefix: str = "runs/") -> list[str]:
        found = self.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"] for entry in found.get("Contents", [])]

    def report(self) -> dict[str, Any]:
        s3 = self.client("s3")
        until(lambda: "runs/r1/report.json" in self.keys())
        body = s3.get_object(Bucket=BUCKET, Key="runs/r1/report.json")["Body"].read()
        s3.delete_object(Bucket=BUCKET, Key="runs/r1/report.json")
        return dict(json.loads(body))

    def bill(self, run: str = "") -> dict[str, Any]:
        query = f"?run={run}" if run else ""
        with urllib.request.urlopen(f"{self.state.url}/_gpurun/bill{query}", timeout=10) as found:
            return dict(json.load(found))

    def post(self, path: str, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        request = urllib.request.Request(self.state.url + path, data=body, method="POST")
        urllib.request.urlopen(request, timeout=10).close()

    def volume(self, instance_id: str) -> Path:
        return self.home / "cloud" / "boxes" / instance_id

    def empty(self) -> None:
        """No box lives and the bucket holds nothing, as before the first test."""
        living = [box for box in self.boxes() if box["State"]["Name"] != "terminated"]
        for box in living:
            self.terminate(box["InstanceId"])
        for box in living:
            self.wait(box["InstanceId"], "terminated")
        for key in self.keys(""):
            self.client("s3").delete_object(Bucket=BUCKET, Key=key)

    def boxes(self) -> list[dict[str, Any]]:
        found = self.ec2.describe_instances()["Reservations"]
        return [dict(instance) for made in found for instance in made["Instances"]]

    def prepare(self) -> None:
        """A bucket, and a profile that may write run r1 and delete nothing."""
        self.client("s3").create_bucket(Bucket=BUCKET)
        iam = self.client("iam")
        iam.create_role(RoleName="box", AssumeRolePolicyDocument="{}")
        document = json.dumps(BOX_POLICY)
        iam.put_role_policy(RoleName="box", PolicyName="p", PolicyDocument=document)
        iam.create_instance_profile(InstanceProfileName="box")
        iam.add_role_to_instance_profile(InstanceProfileName="box", RoleName="box")


def find(home: Path) -> LocalCloud:
    """The cloud that runs from this home, made ready for boxes."""
    state = process.status(home)
    assert state is not None
    cloud = LocalCloud(home, state)
    cloud.prepare()
    return cloud


def start(home: Path, **options: Any) -> LocalCloud:
    process.start(home, **options)
    return find(home)


@pytest.fixture(scope="session")
def find_cloud() -> Callable[[Path], LocalCloud]:
    return find


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    (folder / "cpu").mkdir()
    (folder / "cpu" / "a.whl").write_text("a wheel")
    return folder


# A home folder may be called anything.
AWKWARD = "it's $HOME"


@pytest.fixture(scope="module")
def start_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LocalCloud]]:
    """Start clouds, each in a home of its own; all are stopped when the file is through."""
    homes: list[Path] = []

    def start_one(**options: Any) -> LocalCloud:
        homes.append(tmp_path_factory.mktemp("home") / AWKWARD)
        homes[-1].mkdir()
        return start(homes[-1], **options)

    yield start_one
    for home in homes:
        process.stop(home)


@pytest.fixture(scope="session")
def shared_cloud(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Iterator[LocalCloud]:
    """One cloud for all tests that don't end it."""
    if why_not := bubblewrap.usable():
        pytest.skip(f"no bubblewrap boxes here: {why_not}")
    home = tmp_path_factory.mktemp("home")
    yield start(home, driver="bwrap", wheels=wheels)
    process.stop(home)


@pytest.fixture
def cloud(shared_cloud: LocalCloud) -> Iterator[LocalCloud]:
    """The shared cloud, emptied after the test: tests come in any order."""
    yield shared_cloud
    shared_cloud.empty()
