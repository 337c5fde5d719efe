"""The order of things: reserve, build, launch, arm, watch, tear down, settle.

The only state machine. `drive` may be called at any time, by any machine, after any crash: it
looks at the tags in EC2 and at the run's log, and does what is still missing. Each creating call
is preceded by its log entry, so a crash in between is found again by tag or by ClientToken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator import alarms, run
from orchestrator.aws import boxes as ec2
from orchestrator.aws import dead_letters, keys, network, role, schedules, stack, zones
from orchestrator.aws.images import Ami
from orchestrator.aws.tags import RunTags
from orchestrator.books import Books
from orchestrator.catalog import Catalog, load_catalog
from orchestrator.errors import (
    ApiError,
    CapacityError,
    LaunchError,
    OverCap,
    QuotaError,
    TeardownError,
)
from orchestrator.progress import BoxView, Snapshot, snapshot
from orchestrator.purse import Purse, budget_of
from orchestrator.render import render_user_data
from orchestrator.run import EventKind, RunLog, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.bucket import Bucket
    from orchestrator.aws.session import Session
    from orchestrator.clock import Clock
    from orchestrator.plan import PlannedBox

# How long DescribeInstances may not show an instance that RunInstances just returned.
_VISIBLE_AFTER = timedelta(minutes=5)
# After the cloud's own deadline the controller ends what still lives: nobody else did.
_OVERDUE = timedelta(minutes=2)
# An agent looks for the request to stop every ten seconds, and then drains as at its deadline.
_HEARS_WITHIN = timedelta(seconds=20)
_DRAIN_POLL_S = 3.0
_HEARD_S = 60


@dataclass
class Runner:
    """One run, driven from wherever it stands to its end."""

    session: Session
    bucket: Bucket
    record: RunRecord
    clock: Clock
    on_progress: Callable[[Snapshot], None] = lambda _: None
    on_step: Callable[[str], None] = lambda _: None
    poll_s: float = 15.0
    catalog: Catalog = field(default_factory=load_catalog)

    def __post_init__(self) -> None:
        self.log = RunLog(self.bucket, self.record.run_id)
        shared = budget_of(self.session, self.record)
        self.purse = Purse(self.record, self.bucket, self.log, self.catalog, shared)
        self.books = Books(self.record, self.bucket, self.log, self.catalog, self.purse)
        self.tags = RunTags(
            run_id=self.record.run_id,
            owner=self.record.owner,
            expires_at=self.record.expires_at,
            bucket=self.record.bucket,
        )

    def launch_all(self) -> None:
        """Reserve, build and launch what isn't yet; every box is armed when this returns.

        Raises:
            GpurunError: a box could not be launched; what had been created is gone again.
        """
        if self._tearing_down():
            return
        try:
            self.books.reserve(self.clock.now())
            self._launch_missing(self._unlaunched())
        except (CapacityError, QuotaError, LaunchError, OverCap):
            taken_down = self._tearing_down()  # `down` came meanwhile, and so it failed
            self.finish()
            if not taken_down:
                raise
            return
        self._arm_alive()
        if self._tearing_down():  # `down` came meanwhile and may have listed too early
            self.finish()

    def drive(self) -> Snapshot:
        """From wherever the run stands to the end.

        Raises:
            TeardownError: something with the run's tag is left; the message lists it.
        """
        self.launch_all()
        if not self._tearing_down():
            self._watch()
        self.finish()
        return self.look()

    def look(self) -> Snapshot:
        """What is known of the run right now; changes nothing."""
        events, found, now = self.log.read(), self.instances(), self.clock.now()
        letters = alarms.letters_of(self.session, self.record, now)
        return snapshot(
            self.record,
            events,
            found,
            self.bucket,
            self.catalog,
            now,
            alarms.alarms(self.record, events, found, letters, now),
        )

    def instances(self) -> list[BoxRecord]:
        """The run's instances as EC2 lists them now."""
        return ec2.find_boxes(self.session, self.record.run_id)

    def drain_boxes(self) -> None:
        """Ask the boxes to save, sync and power off, and wait for those whose agent lives."""
        if run.has(self.log.read(), EventKind.CLEAN):
            return
        if not self._tearing_down():
            self.log.append(EventKind.TEARING_DOWN, self.clock.now())
        self.on_step("asking the boxes to save and power off (`down --now` doesn't wait)")
        base = f"runs/{self.record.run_id}/boxes"
        for box in self._listening():
            self.bucket.put(f"{base}/{box.name}/stop", b"")
        drain = max(box.poweroff_at - box.drain_at for box in self.record.plan.boxes)
        until = self.clock.now() + _HEARS_WITHIN + drain
        while self._listening() and self.clock.now() < until:
            self.on_progress(self.look())
            self.clock.sleep(min(self.poll_s, _DRAIN_POLL_S))

    def _listening(self) -> list[BoxView]:
        """Boxes that run and whose agent was heard of lately."""
        return [
            box
            for box in self.look().boxes
            if box.state == "running"
            and box.heartbeat_age_s is not None
            and box.heartbeat_age_s < _HEARD_S
        ]

    def finish(self) -> None:
        """Terminate, tear down, settle; a second time it is a no-op.

        Raises:
            TeardownError: something with the run's tag is left.
        """
        run_id, clean = self.record.run_id, run.has(self.log.read(), EventKind.CLEAN)
        if clean and not stack.leftovers(self.session, run_id):
            self.purse.tell_budget(self.clock.now())
            return
        if not self._tearing_down():
            self.log.append(EventKind.TEARING_DOWN, self.clock.now())
        self._note_failed_switches()
        self.on_step("tearing down")
        left = stack.teardown(self.session, run_id, self.clock.now())
        self.books.note_ended(self.instances(), self.clock.now(), over=True)
        if left:
            items = "\n".join(f"    {item.kind} {item.id}  {item.detail}" for item in left)
            raise TeardownError(
                f"Left behind by {run_id}:\n{items}", hint=f"Try again: gpurun down {run_id}"
            )
        self.purse.close(self.clock.now())
        if not clean:
            self.log.append(EventKind.CLEAN, self.clock.now())
        self.purse.tell_budget(self.clock.now())

    def _note_failed_switches(self) -> None:
        """The teardown deletes the dead letters; what they say stays in the log."""
        now = self.clock.now()
        letters = alarms.letters_of(self.session, self.record, now)
        for letter in alarms.unnoted(letters, self.log.read()):
            self.on_step(f"the cloud's own switch for {letter.box} failed: {letter.reason}")
            self.log.append(EventKind.SWITCH_FAILED, now, box=letter.box, reason=letter.reason)

    def _tearing_down(self) -> bool:
        return run.has(self.log.read(), EventKind.TEARING_DOWN)

    def _unlaunched(self) -> list[PlannedBox]:
        """Boxes that never existed and still have time to do something."""
        events = self.log.read()
        known = {record.box for record in self.instances()}
        return [
            box
            for box in self.record.plan.boxes
            if box.name not in known
            and not run.has(events, EventKind.LAUNCHED, box.name)
            and self.clock.now() < box.drain_at
        ]

    def _launch_missing(self, missing: list[PlannedBox]) -> None:
        if not missing:
            return
        run_id = self.record.run_id
        if not run.has(self.log.read(), EventKind.BUILDING):
            self.log.append(EventKind.BUILDING, self.clock.now())
        self.on_step("building the network")
        net = network.ensure_network(
            self.session, self.tags, self._zones_for(missing), self.record.ssh_cidr
        )
        self.on_step("making the role and the key")
        profile = role.ensure_box_role(self.session, self.tags, self.record.bucket)
        role.ensure_kill_role(self.session, self.tags)
        dead_letters.ensure_queue(self.session, self.tags)  # a refusal must not cost a box
        keys.ensure_key_pair(self.session, self.tags, self._user_public_key())
        for box in missing:
            if self._tearing_down():
                return
            self.on_step(f"launching {box.name} ({box.instance})")
            self.log.append(EventKind.LAUNCHING, self.clock.now(), box=box.name)
            request = self._launch_request(box, profile, f"gpurun-{run_id}")
            self._note_launched(ec2.launch(self.session, request, net))

    def _zones_for(self, boxes: list[PlannedBox]) -> list[str]:
        """Zones with one of the types: as this account names them, not as the catalog does."""
        types = {name for box in boxes for name in (box.instance, *box.fallbacks)}
        offered = zones.offered_zones(self.session, types)
        return sorted({zone for of in offered.values() for zone in of})

    def _launch_request(self, box: PlannedBox, profile: str, key: str) -> ec2.LaunchRequest:
        record = self.record
        return ec2.LaunchRequest(
            tags=self.tags,
            box=box.name,
            instance_types=(box.instance, *box.fallbacks),
            ami=Ami(
                id=record.plan.ami_id or "",
                name=record.plan.ami_parameter,
                root_device=record.root_device,
                snapshot_gb=record.root_snapshot_gb,
            ),
            user_data=render_user_data(
                record.plan,
                box.name,
                run_id=record.run_id,
                bucket=record.bucket,
                payload_sha256=record.payload_sha256,
                poweroff_command=record.poweroff_command,
            ),
            profile=profile,
            key_name=key,
            disk_gb=box.disk_gb,
            attempt=1,
            price_by_type=dict(box.prices_usd_per_hour),
        )

    def _note_launched(self, box: BoxRecord) -> None:
        """Write down the instance, then its kill schedule; a box that can't be armed is ended."""
        if not run.has(self.log.read(), EventKind.LAUNCHED, box.box):
            self.log.append(
                EventKind.LAUNCHED,
                self.clock.now(),
                box=box.box,
                instance_id=box.instance_id,
                instance_type=box.instance_type,
                zone=box.zone,
                launched_at=box.launched_at,
            )
        if box.alive and not run.has(self.log.read(), EventKind.ARMED, box.box):
            self._arm(box)

    def _arm(self, box: BoxRecord) -> None:
        planned = self.record.plan.box(box.box)
        try:
            arn = role.ensure_kill_role(self.session, self.tags)
            schedules.ensure_kill(
                self.session, self.tags, box.box, box.instance_id, planned.cloud_at, arn
            )
        except BaseException:
            ec2.terminate(self.session, [box.instance_id])
            raise
        self.log.append(
            EventKind.ARMED, self.clock.now(), box=box.box, instance_id=box.instance_id
        )

    def _arm_alive(self) -> None:
        for box in self.instances():
            self._note_launched(box)

    def _watch(self) -> None:
        """Look until every box has ended; while AWS can't be reached the boxes need nobody."""
        self.on_step("running")
        while True:
            try:
                if self._all_ended():
                    return
            except ApiError as error:  # a local cloud that is gone won't come back: CloudError
                if self.clock.now() > self.record.expires_at + _OVERDUE:
                    raise
                self.on_step(f"no answer, trying again: {error.message}")
            self.clock.sleep(self.poll_s)

    def _all_ended(self) -> bool:
        records = self.instances()
        self.books.note_ended(records, self.clock.now())
        self._note_failed_switches()
        self.on_progress(self.look())
        alive = [box.instance_id for box in records if box.alive]
        if alive and self.clock.now() > self.record.expires_at + _OVERDUE:
            ec2.terminate(self.session, alive)
        return not alive and not self._still_invisible(records)

    def _still_invisible(self, records: list[BoxRecord]) -> bool:
        """A box launched a moment ago that EC2's eventually consistent reads don't show yet."""
        seen = {box.box for box in records}
        return any(
            event.kind is EventKind.LAUNCHED
            and event.box not in seen
            and self.clock.now() - event.at < _VISIBLE_AFTER
            and not run.has(self.log.read(), EventKind.ENDED, event.box)
            for event in self.log.read()
        )

    def _user_public_key(self) -> str:
        return run.read_ssh_secrets(self.bucket, self.record.run_id).user_public
