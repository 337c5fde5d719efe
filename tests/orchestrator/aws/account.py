"""What the tests of the AWS side are made of: a clock, a run's things, a recorder of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from orchestrator.aws import role, schedules
from orchestrator.aws.boxes import BoxRecord, LaunchRequest, launch
from orchestrator.aws.images import Ami
from orchestrator.aws.network import Network
from orchestrator.aws.session import Session
from orchestrator.aws.tags import RunTags
from tests.fake_clock import FakeClock

ACCOUNT = "123456789012"
REGION = "us-east-1"
RUN = "demo-261129-190000-ab2c"
OTHER_RUN = "demo-261129-190000-zz77"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
IMAGE = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXwRyPPOsnWUbPbtbnI3nmrBYKz9wF7bIxNXEbZP4qd demo"


@dataclass
class Recorder:
    """The parameters of every call of one operation, as botocore sends them."""

    calls: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, params: dict[str, Any], **_: Any) -> None:
        self.calls.append(dict(params))


@dataclass
class Stack:
    """One run's things, made through the public functions in the order a run makes them."""

    session: Session
    tags: RunTags
    ami: Ami
    net: Network

    def request(self, box: str = "l4", **changes: Any) -> LaunchRequest:
        values: dict[str, Any] = {
            "tags": self.tags,
            "box": box,
            "instance_types": ("g6.4xlarge",),
            "ami": self.ami,
            "user_data": "#!/bin/bash\n",
            "profile": f"gpurun-{self.tags.run_id}-box",
            "key_name": f"gpurun-{self.tags.run_id}",
            "disk_gb": 200,
            "attempt": 1,
            "price_by_type": {
                "g6.4xlarge": Decimal("1.3232"),
                "g6e.4xlarge": Decimal("3.00424"),
            },
        }
        return LaunchRequest(**(values | changes))

    def launch(self, box: str = "l4", **changes: Any) -> BoxRecord:
        return launch(self.session, self.request(box, **changes), self.net)

    def arm(self, record: BoxRecord) -> None:
        arn = role.ensure_kill_role(self.session, self.tags)
        at = self.tags.expires_at
        schedules.ensure_kill(self.session, self.tags, record.box, record.instance_id, at, arn)


def tags_of(run_id: str, session: Session, clock: FakeClock) -> RunTags:
    return RunTags(
        run_id=run_id,
        owner="ann@desk",
        expires_at=clock.now() + timedelta(hours=3),
        bucket=f"gpurun-{session.account}-{session.region}",
    )


def other_account(service: str) -> Any:
    """A client of somebody else's account in the same cloud."""
    theirs = boto3.client("sts", REGION).assume_role(
        RoleArn="arn:aws:iam::222222222222:role/theirs", RoleSessionName="theirs"
    )["Credentials"]
    make: Any = boto3.client  # the stubs take no name that is known only when it runs
    return make(
        service,
        REGION,
        aws_access_key_id=theirs["AccessKeyId"],
        aws_secret_access_key=theirs["SecretAccessKey"],
        aws_session_token=theirs["SessionToken"],
    )


class Killed(BaseException):
    """As SIGKILL: nothing catches it."""


class killed_after:
    """Within it, the n-th call to AWS that changes something never returns."""

    def __init__(self, session: Session, calls: int) -> None:
        self._events = [session.client(s).meta.events for s in ("ec2", "iam", "scheduler")]
        self._left = calls

    def __enter__(self) -> None:
        for events in self._events:
            events.register("after-call", self._count)

    def __exit__(self, *_: object) -> None:
        for events in self._events:
            events.unregister("after-call", self._count)

    def _count(self, model: Any, **_: Any) -> None:
        if not model.name.startswith(("Describe", "Get", "List")):
            self._left -= 1
            if self._left == 0:
                raise Killed


class answer:
    """Within it, one operation (of EC2, if not said) answers this without any effect."""

    def __init__(
        self,
        session: Session,
        operation: str,
        body: dict[str, Any],
        status: int = 200,
        service: Any = "ec2",
    ) -> None:
        # Any: the stubs know of no handler that answers in the cloud's place.
        self._events: Any = session.client(service).meta.events
        self._name = f"before-call.{service}.{operation}"
        self._body = {"ResponseMetadata": {"HTTPStatusCode": status}} | body
        self._status = status

    def __enter__(self) -> None:
        self._events.register(self._name, self._answer)

    def __exit__(self, *_: object) -> None:
        self._events.unregister(self._name, self._answer)

    def _answer(self, **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
        return AWSResponse("https://ec2", self._status, HTTPHeaders(), None), self._body


def refuse(session: Session, operation: str, code: str) -> answer:
    """Within it, one operation of EC2 is refused without any effect."""
    return answer(session, operation, {"Error": {"Code": code, "Message": "no"}}, 400)
