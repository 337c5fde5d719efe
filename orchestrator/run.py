"""A run: its id, the record that lets any machine go on with it, and its log.

Both live in the results bucket, so that local files are only a cache. The record is written
once, before the first call that creates anything. Log entries are numbered, and S3's
conditional put makes each number one writer's: two controllers can't overwrite each other.
"""

from __future__ import annotations

import re
import secrets
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.errors import RunDamaged, RunNotFound
from orchestrator.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orchestrator.aws.bucket import Bucket

RUN_ID = re.compile(r"[a-z][a-z0-9-]{0,15}-\d{6}-\d{6}-[a-z2-7]{4}")
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


class EventKind(StrEnum):
    """What the controller wrote down: before the act that it names, or after what it saw."""

    RESERVED = "reserved"
    BUILDING = "building"
    LAUNCHING = "launching"
    REFUSED = "refused"
    LAUNCHED = "launched"
    ARMED = "armed"
    UNARMED = "unarmed"
    ENDED = "ended"
    SWITCH_FAILED = "switch-failed"
    TEARING_DOWN = "tearing-down"
    SETTLED = "settled"
    CLEAN = "clean"


class Event(BaseModel):
    """One entry of the run's log. `usd` is set on reserved and settled entries only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    at: datetime
    kind: EventKind
    box: str | None = None
    usd: Decimal | None = None
    instance_id: str | None = None
    instance_type: str | None = None
    zone: str | None = None
    reason: str | None = None
    launched_at: datetime | None = None
    ended_at: datetime | None = None
    attempt: int | None = None
    """Which launch of the box this is about, from 1; entries of an older version have none."""

    @property
    def nth(self) -> int:
        return self.attempt or 1

    @property
    def line(self) -> str:
        """The ledger's line of the box's attempt."""
        return line_of(self.box or "", self.nth)


def line_of(box: str, attempt: int) -> str:
    """`one`, then `one#2`: each launch of a box is reserved and settled by itself."""
    return box if attempt == 1 else f"{box}#{attempt}"


class RunRecord(BaseModel):
    """Everything a controller on another machine needs to go on; holds no secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    owner: str
    created_at: datetime
    plan: Plan
    bucket: str
    root_device: str
    root_snapshot_gb: int
    payload_sha256: str
    ssh_cidr: str | None
    ssh_host_key: str
    """Public half, OpenSSH format: the boxes' host key, known before they boot."""
    poweroff_command: str
    budget: str | None = None
    """The budget that the run shares with others, and the region whose bucket keeps it."""
    budget_region: str | None = None

    @property
    def region(self) -> str:
        return self.plan.region

    @property
    def expires_at(self) -> datetime:
        """When the last box must be gone; what sweep compares with."""
        return max(box.cloud_at for box in self.plan.boxes)


def new_run_id(name: str, now: datetime) -> str:
    """`<runbook>-<date>-<time>-<4 random base32 digits>`: sorts by time within a runbook."""
    tail = "".join(secrets.choice(_BASE32) for _ in range(4))
    return f"{name}-{now:%y%m%d-%H%M%S}-{tail}"


def check_run_id(run_id: str) -> str:
    """Refuse what can't be a run id before it becomes part of an S3 key.

    Raises:
        RunNotFound: it isn't of the form that `gpurun up` prints.
    """
    if not RUN_ID.fullmatch(run_id):
        raise RunNotFound(
            f"{run_id!r} is not a run id (like rehearsal-261129-193045-k7qm).",
            hint="List your runs: gpurun status",
        )
    return run_id


def write_record(bucket: Bucket, record: RunRecord) -> bool:
    """Write run.json once; False when another run is on record under that id."""
    data = record.model_dump_json(indent=1).encode()
    return bucket.put(f"runs/{record.run_id}/run.json", data, if_absent=True)


def read_record(bucket: Bucket, run_id: str) -> RunRecord:
    """Raises:
    RunNotFound: the bucket has no record of the run.
    RunDamaged: it has one that can't be read.
    """
    data = bucket.get(f"runs/{check_run_id(run_id)}/run.json")
    if data is None:
        raise RunNotFound(f"No run {run_id} in this account.", hint="List runs: gpurun status")
    try:
        return RunRecord.model_validate_json(data)
    except ValidationError as error:
        raise _damaged(run_id, "run.json") from error


def _damaged(run_id: str, name: str) -> RunDamaged:
    return RunDamaged(
        f"{name} of {run_id} can't be read.",
        hint=f"End the run by its tags alone: gpurun down {run_id}",
    )


class SshSecrets(BaseModel):
    """The run's throw-away keys; kept outside runs/, where no box's role can read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user_private: str
    user_public: str
    host_private: str
    host_public: str


def write_ssh_secrets(bucket: Bucket, run_id: str, secrets: SshSecrets) -> None:
    """Write them once; the first writer's stay."""
    data = secrets.model_dump_json().encode()
    bucket.put(f"control/{run_id}/ssh.json", data, if_absent=True)


def read_ssh_secrets(bucket: Bucket, run_id: str) -> SshSecrets:
    """Raises:
    RunNotFound: the run has none.
    RunDamaged: they can't be read.
    """
    data = bucket.get(f"control/{check_run_id(run_id)}/ssh.json")
    if data is None:
        raise RunNotFound(f"The run {run_id} has no SSH keys in its bucket.")
    try:
        return SshSecrets.model_validate_json(data)
    except ValidationError as error:
        raise RunDamaged(
            f"The SSH keys of {run_id} can't be read.",
            hint=f"On the machine that began the run: gpurun rescue {run_id} BOX. To end it: "
            f"gpurun down {run_id}",
        ) from error


class RunLog:
    """The run's append-only log in S3."""

    def __init__(self, bucket: Bucket, run_id: str) -> None:
        self._bucket, self._run_id = bucket, run_id
        self._prefix = f"runs/{run_id}/events/"
        self._events: list[Event] = []

    def read(self) -> list[Event]:
        """All entries in order; only those not seen before are fetched.

        Raises:
            RunDamaged: an entry can't be read.
        """
        known = {event.seq for event in self._events}
        for key, _ in self._bucket.keys(self._prefix):
            name = key.removeprefix(self._prefix).removesuffix(".json")
            if (
                name.isdecimal()
                and int(name) not in known
                and (data := self._bucket.get(key)) is not None
            ):
                self._events.append(self._event(key, data))
        self._events.sort(key=lambda event: event.seq)
        return list(self._events)

    def _event(self, key: str, data: bytes) -> Event:
        try:
            return Event.model_validate_json(data)
        except ValidationError as error:
            raise _damaged(self._run_id, key.removeprefix(f"runs/{self._run_id}/")) from error

    def append(self, kind: EventKind, now: datetime, **fields: object) -> Event:
        """Write the next entry; takes the following number when another writer was first."""
        seq = max((event.seq for event in self.read()), default=0) + 1
        while True:
            event = Event.model_validate({"seq": seq, "at": now, "kind": kind, **fields})
            if self._put(event):
                return event
            seq += 1

    def decide(
        self, now: datetime, decision: Callable[[list[Event]], dict[str, object] | None]
    ) -> Event | None:
        """Write what `decision` makes of the log; it decides again when another was first."""
        while (fields := decision(self.read())) is not None:
            seq = max((event.seq for event in self._events), default=0) + 1
            event = Event.model_validate({"seq": seq, "at": now, **fields})
            if self._put(event):
                return event
        return None

    def _put(self, event: Event) -> bool:
        data = event.model_dump_json(exclude_none=True).encode()
        if not self._bucket.put(f"{self._prefix}{event.seq:06d}.json", data, if_absent=True):
            return False
        self._events.append(event)
        return True


def has(events: Iterable[Event], kind: EventKind, box: str | None = None) -> bool:
    """Whether the log holds such an entry."""
    return any(event.kind is kind and (box is None or event.box == box) for event in events)


def last(events: Iterable[Event], kind: EventKind, box: str) -> Event | None:
    """The newest such entry of a box."""
    found = [event for event in events if event.kind is kind and event.box == box]
    return found[-1] if found else None
