"""Building a run's place in the account, launching its boxes there, and arming each at once.

A box's guard is made before the box, and its instance's own switch (`arming`) right after it.

Every try is written down before it is made. A try whose answer never came is made again, first
of all and with the same ClientToken, so that what it may have made is found before anything new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

from orchestrator import run, unseen
from orchestrator.arming import Armer
from orchestrator.aws import boxes as ec2
from orchestrator.aws import dead_letters, keys, network, role, schedules, zones
from orchestrator.aws.images import Ami
from orchestrator.aws.skew import check_clock
from orchestrator.errors import CapacityError, GpurunError, LaunchError, QuotaError
from orchestrator.lives import UNLISTED, Life
from orchestrator.payload import secret_sources
from orchestrator.render import render_user_data
from orchestrator.run import Event, EventKind, RunLog, RunRecord

if TYPE_CHECKING:
    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.bucket import Bucket
    from orchestrator.aws.session import Session
    from orchestrator.aws.tags import RunTags
    from orchestrator.books import Books
    from orchestrator.clock import Clock
    from orchestrator.plan import PlannedBox


# Made again later it is another try: how long EC2 may not show what it made counts from then.
_SAME_TRY = timedelta(minutes=1)


@dataclass(frozen=True)
class Ground:
    """What a box needs to be launched."""

    net: network.Network
    profile: str
    key: str
    kill_role: str
    """ARN."""


@dataclass
class Launcher:
    """Launches the boxes of one run."""

    session: Session
    bucket: Bucket
    record: RunRecord
    clock: Clock
    log: RunLog
    books: Books
    tags: RunTags
    on_step: Callable[[str], None]

    def __post_init__(self) -> None:
        self.armer = Armer(
            session=self.session,
            record=self.record,
            clock=self.clock,
            log=self.log,
            books=self.books,
            tags=self.tags,
            on_step=self.on_step,
        )

    def build(self, boxes: Sequence[PlannedBox]) -> Ground:
        """The run's network, role and keys, made if they aren't there.

        Raises:
            ClockWrong: by this machine's clock the boxes' deadlines can't be trusted.
            LaunchError: the run is being taken down.
        """
        check_clock(self.session, self.clock.now)
        announce = partial(unseen.announce, self.log, self.clock)
        self.on_step("building the network")
        net = network.ensure_network(
            self.session,
            self.tags,
            self._zones_for(boxes),
            self.record.ssh_cidr,
            before=announce,
        )
        self.on_step("making the role and the key")
        announce()
        profile = role.ensure_box_role(
            self.session,
            self.tags,
            self.record.bucket,
            secret_sources(self.record.plan, self.record.run_id).values(),
        )
        kill_role = role.ensure_kill_role(self.session, self.tags)
        dead_letters.ensure_queue(self.session, self.tags)  # a refusal must not cost a box
        announce()
        keys.ensure_key_pair(self.session, self.tags, self._public_key)
        return Ground(net, profile, f"gpurun-{self.record.run_id}", kill_role)

    def launch(self, box: PlannedBox, attempt: int, ground: Ground) -> None:
        """Launch and arm one attempt of a box, unless building took until its time was over.

        Raises:
            CapacityError, QuotaError, LaunchError: it could not be launched.
            ApiError: no answer; its guard could not be made, and nothing is launched; or it
                could not be armed and is ended.
        """
        if self.clock.now() >= box.drain_at:
            return
        again = f", attempt {attempt}" if attempt > 1 else ""
        self.on_step(f"launching {box.name} ({box.instance}{again})")
        schedules.ensure_guard(self.session, self.tags, box.name, box.cloud_at, ground.kill_role)
        request = self._request(box, attempt, ground)
        tries = self._tries(box, attempt)
        last_try = (tries[-1].instance_type or "", tries[-1].zone or "") if tries else None
        armed: set[str] = set()

        def arm(made: BoxRecord) -> None:
            self.armer.arm(made)
            armed.add(made.instance_id)

        try:
            kept = ec2.launch(
                self.session,
                request,
                ground.net,
                last_try=last_try,
                before=lambda kind, zone: self._note_try(box, attempt, kind, zone),
                after=arm,
            )
        except (CapacityError, QuotaError, LaunchError) as refused:
            if isinstance(refused, LaunchError) and refused.used_up:
                self._note_unseen(box, attempt)
                return
            self._note_refused(box, attempt, refused)
            raise
        if kept.instance_id not in armed:
            self.armer.keep(kept)
        self.armer.note(kept, is_armed=True)

    def _note_try(self, box: PlannedBox, attempt: int, kind: str, zone: str) -> None:
        tries, now = self._tries(box, attempt), self.clock.now()
        same = tries and (tries[-1].instance_type, tries[-1].zone) == (kind, zone)
        if same and now - tries[-1].at < _SAME_TRY:
            return
        self.log.append(
            EventKind.LAUNCHING,
            now,
            box=box.name,
            attempt=attempt,
            instance_type=kind,
            zone=zone,
        )

    def _note_refused(self, box: PlannedBox, attempt: int, refused: GpurunError) -> None:
        """Every try was answered: nothing of this attempt exists, so it costs nothing."""
        why, now = refused.message.partition("\n")[0], self.clock.now()
        self.log.append(EventKind.REFUSED, now, box=box.name, attempt=attempt, reason=why)

    def _tries(self, box: PlannedBox, attempt: int) -> list[Event]:
        """Tries since all were last refused: the answer to the newest may have got lost."""
        found: list[Event] = []
        for event in self.log.read():
            if (event.box, event.nth) != (box.name, attempt):
                continue
            if event.kind is EventKind.REFUSED:
                found = []
            elif event.kind is EventKind.LAUNCHING and event.zone:
                found.append(event)
        return found

    def _note_unseen(self, box: PlannedBox, attempt: int) -> None:
        """An attempt that lived while no controller did: EC2 knows its token, and no instance."""
        tries, now = self._tries(box, attempt), self.clock.now()
        began = tries[-1].at if tries else now
        kind = (tries[-1].instance_type if tries else None) or box.instance
        life = Life(box.name, attempt, "", kind, "", "terminated", UNLISTED, began, now)
        self.books.note_launched(life, now)
        self.books.end_gone(life, now)

    def _zones_for(self, boxes: Sequence[PlannedBox]) -> list[str]:
        """Zones with one of the types: as this account names them, not as the catalog does."""
        types = {name for box in boxes for name in (box.instance, *box.fallbacks)}
        offered = zones.offered_zones(self.session, types)
        return sorted({zone for of in offered.values() for zone in of})

    def _request(self, box: PlannedBox, attempt: int, ground: Ground) -> ec2.LaunchRequest:
        record = self.record
        return ec2.LaunchRequest(
            tags=replace(self.tags, expires_at=box.cloud_at),  # the box's own, for a sweep
            box=box.name,
            instance_types=(box.instance, *box.fallbacks),
            ami=Ami(
                id=record.plan.ami_id or "",
                name=record.plan.ami_parameter,
                root_device=record.root_device,
                snapshot_gb=record.root_snapshot_gb,
            ),
            user_data=render_user_data(
                record.plan.model_copy(update={"planned_at": self._since(box, attempt)}),
                box.name,
                run_id=record.run_id,
                bucket=record.bucket,
                payload_sha256=record.payload_sha256,
                poweroff_command=record.poweroff_command,
            ),
            profile=ground.profile,
            key_name=ground.key,
            disk_gb=box.disk_gb,
            attempt=attempt,
            price_by_type=dict(box.prices_usd_per_hour),
            spot=box.spot,
            quota_code=box.quota_code,
            vcpus=box.vcpus,
        )

    def _since(self, box: PlannedBox, attempt: int) -> datetime:
        """From when the box may live: no clock is asked, so that all tries ask for the same."""
        line = run.line_of(box.name, attempt)
        reserved = run.last(self.log.read(), EventKind.RESERVED, line)
        return reserved.at if attempt > 1 and reserved else self.record.plan.planned_at

    @cached_property
    def _public_key(self) -> str:
        return run.read_ssh_secrets(self.bucket, self.record.run_id).user_public
