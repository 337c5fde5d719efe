"""A proof from its first call to its last: launch, keep hands off, judge, tear down, account.

Whatever happens in between, an interrupt included, everything is torn down before this returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.aws import boxes as ec2
from orchestrator.aws import evidence, stack, sweep
from orchestrator.aws.bucket import ensure_bucket
from orchestrator.aws.tags import RunTags
from orchestrator.bill import Span, span_usd
from orchestrator.catalog import Catalog, load_catalog
from orchestrator.errors import ApiError, GpurunError
from orchestrator.money import usd
from orchestrator.proof import earlier
from orchestrator.proof.account import check_account, check_bucket
from orchestrator.proof.build import Builder
from orchestrator.proof.checks import Checks, ProofReport
from orchestrator.proof.design import (
    AGENT,
    BOXES,
    CONTROLLER,
    DISK_GB,
    HALTED,
    INSTANCE,
    NAME,
    SWEEP,
    Timing,
    burst_usd,
    proof_plan,
)
from orchestrator.proof.saved import check_saved
from orchestrator.proof.verdicts import Expected, Sightings, asked, expectations, is_settled, judge
from orchestrator.run import new_run_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.session import Session
    from orchestrator.clock import Clock
    from orchestrator.plan import Plan
    from orchestrator.quote import Cloud

_VOLUMES_GONE_S = 120.0


@dataclass
class Proof:
    """One proof on one account."""

    session: Session
    cloud: Cloud
    timing: Timing
    cap_usd: Decimal
    clock: Clock
    owner: str
    to: Path
    """Gets what the box saved."""
    boxes_are_processes: bool = False
    checks: Checks = field(default_factory=Checks)
    on_step: Callable[[str], None] = lambda _: None
    catalog: Catalog = field(default_factory=load_catalog)
    left: list[str] = field(default_factory=list)
    records: dict[str, BoxRecord] = field(default_factory=dict)
    """Of every box, as last seen."""

    def prove(self) -> ProofReport:
        """The whole proof; a check that failed is in the report.

        Raises:
            OverCap: the worst case doesn't fit under the cap; nothing was created.
            QuotaError, CatalogError, CredentialsError, BucketError: as a run would.
            GpurunError: what kept the proof from going on; what it had created is gone.
        """
        self.began = self.clock.now()
        self.plan = self._plan()
        ami = check_account(self.session, self.plan, self.checks)
        self.bucket = ensure_bucket(self.session)
        check_bucket(self.bucket, self.checks)
        earlier.end_earlier(self.bucket, self.owner, self.clock.now(), self.checks)
        self.plan = self._plan()  # deadlines count from here
        self.run_id = new_run_id(NAME, self.plan.planned_at)
        earlier.note(self.bucket, self.run_id, self.owner)
        self.builder = Builder(
            session=self.session,
            bucket=self.bucket,
            plan=self.plan,
            timing=self.timing,
            ami=ami,
            own=self._tags(self.run_id, self.timing.net),
            victim=self._tags(earlier.victim_of(self.run_id), self.timing.expiry),
            clock=self.clock,
            checks=self.checks,
            boxes_are_processes=self.boxes_are_processes,
            on_step=self.on_step,
        )
        try:
            self._run()
        finally:
            self._tear_down()
        self._account()
        return self._report()

    def _run(self) -> None:
        names = tuple(n for n in BOXES if n != HALTED or not self.boxes_are_processes)
        if HALTED not in names:
            self.checks.skip(f"ended: {HALTED}", "a box of plain processes can't be halted")
        self.builder.build(names)
        self.builder.read_back(AGENT)
        self.on_step("hands off: each box is left to its one enforcer")
        self._watch(names)
        self._spare_the_foreign()
        self._sweep()
        self._volumes_gone()
        check_saved(self.bucket, self.run_id, self.to, self.timing, self.checks)

    def _watch(self, names: tuple[str, ...]) -> None:
        """Judge each box as it ends; end the controller's own when its time has come."""
        waiting = {k: e for k, e in expectations(self.plan, self.timing).items() if k in names}
        sightings, controller_at = Sightings(), self._at(self.timing.controller)
        asked_at: datetime | None = None
        while waiting or asked_at is None:
            now = self.clock.now()
            if asked_at is None and now >= controller_at:
                asked_at = self._terminate_by_tag()
                expected = asked(CONTROLLER, "the controller, by tag", asked_at, self.timing)
                waiting[CONTROLLER] = expected
            self._look(sightings)
            self._judge_settled(waiting, sightings)
            self.clock.sleep(self.timing.poll)

    def _judge_settled(self, waiting: dict[str, Expected], sightings: Sightings) -> None:
        for name, expected in list(waiting.items()):
            seen = sightings.of(name)
            if is_settled(expected, seen, self.clock.now()):
                self.checks.add(judge(expected, seen))
                del waiting[name]

    def _terminate_by_tag(self) -> datetime:
        found = ec2.find_boxes(self.session, self.run_id, CONTROLLER)
        at = self.clock.now()
        ec2.terminate(self.session, [box.instance_id for box in found])
        return at

    def _look(self, sightings: Sightings) -> None:
        """A look that gets no answer is no sighting: the boxes need nobody."""
        try:
            found = [
                box
                for tags in (self.builder.own, self.builder.victim)
                for box in ec2.find_boxes(self.session, tags.run_id)
            ]
        except ApiError as error:
            self.on_step(f"no answer, trying again: {error.message}")
            return
        self.records |= {box.box: box for box in found}
        sightings.look(found, self.clock.now())

    def _spare_the_foreign(self) -> None:
        """The run's schedule has been told to end another run's box; its role may not."""
        late = self.timing.foreign + self.timing.fires_late + self.timing.poll
        self._sleep_until(self._at(late))
        found = ec2.find_boxes(self.session, self.builder.victim.run_id, SWEEP)
        alive = [box.state for box in found if box.alive]
        said = f"{alive[0]} after its time" if alive else "the role ended another run's box"
        self.checks.record("role spares other runs", bool(alive), said)

    def _sweep(self) -> None:
        """From tags alone: nothing here says which instance it is."""
        self._sleep_until(self._at(self.timing.expiry))
        victim, at = self.builder.victim.run_id, self.clock.now()
        expected = asked(SWEEP, "a sweep, from its expiry tag", at, self.timing)
        swept = sweep.sweep(self.session, at, [self.session.region], only={victim})
        sightings = Sightings()
        self._look(sightings)
        self.checks.add(judge(expected, sightings.of(SWEEP)))
        left = [f"{item.kind} {item.id}" for item in swept.left if item.run == victim]
        said = ", ".join(left) or "its box, network and role, by tag"
        took = (self.clock.now() - at).total_seconds()
        self.checks.record("swept whole", victim in swept.ended and not left, said, took)

    def _volumes_gone(self) -> None:
        began = self.clock.now()
        runs = (self.builder.own.run_id, self.builder.victim.run_id)
        gone = self.session.patience.until(
            lambda: None if any(evidence.volumes_of(self.session, run) for run in runs) else True,
            timeout_s=_VOLUMES_GONE_S,
        )
        took = (self.clock.now() - began).total_seconds()
        self.checks.record("disks went with their boxes", bool(gone), "", took)

    def _tear_down(self) -> None:
        self.on_step("tearing down")
        began = self.clock.now()
        for tags in (self.builder.victim, self.builder.own):
            try:
                left = stack.teardown(self.session, tags.run_id, self.clock.now())
            except GpurunError as error:
                self.left.append(f"whatever {tags.run_id} made: {error.message}")
            else:
                self.left += [f"{item.kind} {item.id}" for item in left]
        took = (self.clock.now() - began).total_seconds()
        self.checks.record("nothing is left", not self.left, ", ".join(self.left), took)

    def _account(self) -> None:
        """By EC2's own times, as the bill of a run; the CPU of bursting boxes at its worst."""
        self.total_usd = self.plan.results_usd
        for box in self.records.values():
            span = Span(box.box, INSTANCE, DISK_GB, box.launched_at, box.ended_at)
            now = self.clock.now()
            self.total_usd += span_usd(span, self.catalog, self.session.region, now)
            vcpus = self.plan.box(box.box).vcpus
            self.total_usd += burst_usd(box.box, vcpus, span.hours(now))
        words = f"at most {usd(self.total_usd)} of {usd(self.plan.worst_case_usd)} set aside"
        self.checks.record("bill", self.total_usd <= self.plan.worst_case_usd, words)

    def _report(self) -> ProofReport:
        return ProofReport(
            run_id=self.run_id,
            cloud=self.cloud,
            region=self.session.region,
            account=self.session.account,
            checks=tuple(self.checks.found),
            left=tuple(self.left),
            total_usd=self.total_usd,
            worst_case_usd=self.plan.worst_case_usd,
            cap_usd=self.cap_usd,
            seconds=(self.clock.now() - self.began).total_seconds(),
        )

    def _plan(self) -> Plan:
        now = self.clock.now().replace(microsecond=0)
        region, catalog = self.session.region, self.catalog
        return proof_plan(self.cloud, region, catalog, now, self.timing, self.cap_usd)

    def _tags(self, run_id: str, expires_after_s: int) -> RunTags:
        at = self._at(expires_after_s)
        return RunTags(run_id=run_id, owner=self.owner, expires_at=at, bucket=self.bucket.name)

    def _at(self, seconds: float) -> datetime:
        return self.plan.planned_at + timedelta(seconds=seconds)

    def _sleep_until(self, at: datetime) -> None:
        left = (at - self.clock.now()).total_seconds()
        if left > 0:
            self.clock.sleep(left)
