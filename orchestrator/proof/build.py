"""From an empty account to the proof's boxes, each armed, and read back as EC2 has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.aws import boxes as ec2
from orchestrator.aws import evidence, keys, network, role, schedules, zones
from orchestrator.aws import tags as tag
from orchestrator.payload import build_payload
from orchestrator.proof.design import BURSTS, DISK_GB, GUARD, INSTANCE, SWEEP, Timing
from orchestrator.proof.scripts import script_of
from orchestrator.remote import new_key_pair
from orchestrator.render import POWEROFF, POWEROFF_BY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.bucket import Bucket
    from orchestrator.aws.images import Ami
    from orchestrator.aws.session import Session
    from orchestrator.aws.tags import RunTags
    from orchestrator.clock import Clock
    from orchestrator.plan import Plan
    from orchestrator.proof.checks import Checks

FOREIGN = "foreign"
"""A schedule of the proof's own run that is aimed at the box of the other."""
_TAGGED = (tag.RUN, tag.OWNER, tag.EXPIRES_AT, tag.BUCKET, tag.PRICE, tag.BOX, "Name")


@dataclass
class Builder:
    """Everything that a proof creates, by the calls that a run makes."""

    session: Session
    bucket: Bucket
    plan: Plan
    timing: Timing
    ami: Ami
    own: RunTags
    victim: RunTags
    """Of the run that is past its expiry when the sweep comes: its box is `SWEEP`."""
    clock: Clock
    checks: Checks
    boxes_are_processes: bool
    on_step: Callable[[str], None]
    ids: dict[str, str] = field(default_factory=dict)
    """Instance ids by box, as they were launched."""

    def build(self, names: tuple[str, ...]) -> None:
        """Network, roles, payload, boxes: each box is armed right after its launch."""
        self.on_step("building the networks")
        offered = zones.offered_zones(self.session, [INSTANCE])[INSTANCE]
        nets = {
            tags.run_id: network.ensure_network(self.session, tags, offered, None)
            for tags in self._runs
        }
        self.on_step("making the roles, the key and the payload")
        user, host = new_key_pair("kill-proof"), new_key_pair("kill-proof-host")
        key = keys.ensure_key_pair(self.session, self.own, user.public)
        sha256 = self._payload(host.private)
        profile = role.ensure_box_role(self.session, self.own, self.bucket.name)
        profile_made = self.clock.now()
        arns = {tags.run_id: role.ensure_kill_role(self.session, tags) for tags in self._runs}
        roles_made = self.clock.now()
        for name in names:
            self.on_step(f"launching {name}")
            if name == GUARD:
                self._guard(arns[self.own.run_id])
            run_id, request = self.tags_of(name).run_id, self._request(name, profile, key, sha256)
            made = ec2.launch(self.session, request, nets[run_id])
            if not self.ids:
                took = self._since(profile_made)
                self.checks.record("profile is usable", True, "from its making on", took)
            self.ids[name] = made.instance_id
            self._arm(made, arns[run_id])
            if len(self.ids) == 1:
                took = self._since(roles_made)
                self.checks.record("schedule's role is accepted", True, "from its making on", took)
        self._aim_at_foreign(arns[self.own.run_id])

    def tags_of(self, box: str) -> RunTags:
        return self.victim if box == SWEEP else self.own

    def read_back(self, box: str) -> None:
        """What EC2 says of a box against what was asked for."""

        def look() -> None:
            found = evidence.launched(self.session, self.ids[box])
            record = self.checks.record
            record("power-off terminates", found.shutdown == "terminate", found.shutdown)
            record("metadata needs a token", found.imds == "required", found.imds)
            going = found.volume_goes and found.interface_goes
            record("disk and interface go along", going, found.volume_id)
            record("disk is encrypted", found.volume_encrypted, found.volume_id)
            for kind, tags in found.tags.items():
                missing = [name for name in _TAGGED if not tags.get(name)]
                said = f"lacks {', '.join(missing)}" if missing else f"{len(_TAGGED)} tags"
                record(f"tagged: {kind}", not missing, said)

        self.checks.guard("launch read back", look)

    @property
    def _runs(self) -> tuple[RunTags, RunTags]:
        return self.own, self.victim

    def _payload(self, host_private: str) -> str:
        run_id = self.own.run_id
        made = build_payload(self.plan, run_id, self.bucket.name, host_private=host_private)
        self.bucket.put_file(f"runs/{run_id}/payload/{made.sha256}.tar.gz", made.path)
        return made.sha256

    def _request(self, name: str, profile: str, key: str, sha256: str) -> ec2.LaunchRequest:
        box = self.plan.box(name)
        poweroff = POWEROFF_BY_VARIABLE if self.boxes_are_processes else POWEROFF
        return ec2.LaunchRequest(
            tags=self.tags_of(name),
            box=name,
            instance_types=(box.instance,),
            ami=self.ami,
            user_data=script_of(
                self.plan,
                name,
                run_id=self.own.run_id,
                bucket=self.bucket.name,
                payload_sha256=sha256,
                poweroff_command=poweroff,
            ),
            profile=profile,
            key_name=key,
            disk_gb=DISK_GB,
            attempt=1,
            price_by_type=dict(box.prices_usd_per_hour),
            quota_code=box.quota_code,
            vcpus=box.vcpus,
            cpu_credits="unlimited" if name in BURSTS else "standard",
        )

    def _arm(self, made: BoxRecord, arn: str) -> None:
        """As on every run: a box whose schedule can't be made is ended.

        Every schedule has this run's name: one of the victim's own would put off its expiry.
        """
        at = self.plan.box(made.box).cloud_at
        try:
            schedules.ensure_kill(self.session, self.own, made.box, made.instance_id, at, arn)
        except BaseException:
            ec2.terminate(self.session, [made.instance_id])
            raise

    def _guard(self, arn: str) -> None:
        """Before its box is there; the box's own schedule is far later."""
        at = self.plan.planned_at + timedelta(seconds=self.timing.schedule)
        schedules.ensure_guard(self.session, self.own, GUARD, at, arn)

    def _aim_at_foreign(self, arn: str) -> None:
        if SWEEP in self.ids:
            at = self.plan.planned_at + timedelta(seconds=self.timing.foreign)
            schedules.ensure_kill(self.session, self.own, FOREIGN, self.ids[SWEEP], at, arn)

    def _since(self, then: datetime) -> float:
        return (self.clock.now() - then).total_seconds()
