"""A run's things, made as a run makes them: through the public functions of `orchestrator.aws`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from orchestrator.aws import keys, network, role, schedules
from orchestrator.aws.boxes import BoxRecord, LaunchRequest, launch
from orchestrator.aws.bucket import Bucket, ensure_bucket
from orchestrator.aws.images import Ami, resolve_ami
from orchestrator.aws.network import Network
from orchestrator.aws.session import Session
from orchestrator.aws.tags import RunTags, named
from tests.faults.cloud.kit import KEY, PARAMETER

TYPE = "g6.xlarge"


@dataclass(frozen=True)
class BuiltRun:
    """Everything before the first box, and the way to launch one."""

    session: Session
    tags: RunTags
    bucket: Bucket
    net: Network
    profile: str
    kill_role: str
    ami: Ami

    @property
    def run_id(self) -> str:
        return self.tags.run_id

    def request(self, box: str = "l4", **changes: Any) -> LaunchRequest:
        usual = LaunchRequest(
            tags=self.tags,
            box=box,
            instance_types=(TYPE,),
            ami=self.ami,
            user_data="#!/bin/bash\n",
            profile=self.profile,
            key_name=named(self.run_id),
            disk_gb=100,
            attempt=1,
            price_by_type={TYPE: Decimal("0.8048"), "g6.2xlarge": Decimal("0.9776")},
        )
        return replace(usual, **changes)

    def launch(self, box: str = "l4", **changes: Any) -> BoxRecord:
        return launch(self.session, self.request(box, **changes), self.net)

    def armed(self, box: str = "l4", **changes: Any) -> BoxRecord:
        """Launched, and with the cloud's own end set."""
        record = self.launch(box, **changes)
        schedules.ensure_kill(
            self.session,
            self.tags,
            box,
            record.instance_id,
            self.tags.expires_at,
            self.kill_role,
        )
        return record

    def guard(self, box: str = "l4") -> None:
        """What ends the box by its tag, whether it is there yet or not."""
        at = self.tags.expires_at
        schedules.ensure_guard(self.session, self.tags, box, at, self.kill_role)


def build_run(session: Session, tags: RunTags, zones: tuple[str, ...]) -> BuiltRun:
    """May be called again: what is there stays."""
    keys.ensure_key_pair(session, tags, KEY)
    return BuiltRun(
        session=session,
        tags=tags,
        bucket=ensure_bucket(session),
        net=network.ensure_network(session, tags, zones, "192.0.2.7/32"),
        profile=role.ensure_box_role(session, tags, tags.bucket),
        kill_role=role.ensure_kill_role(session, tags),
        ami=resolve_ami(session, PARAMETER),
    )
