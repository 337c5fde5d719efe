"""What carries our tag in a region, by id: the last word on whether a run is really gone.

Each kind is described for itself, because EC2's list of tags goes on naming what was deleted. That
list only serves for kinds which no run of ours makes, such as an address that a person attached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.aws import dead_letters, schedules, secrets
from orchestrator.aws import tags as tag
from orchestrator.aws.kinds import KINDS, Bills, Kind
from orchestrator.aws.refusals import boundary, is_missing
from orchestrator.aws.role_policies import BOX, KILL, PATH
from orchestrator.aws.tags import PREFIX, as_map, named, of_run, parse_time, where
from orchestrator.errors import CloudError, GpurunError

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

_FIRST = "EC2 instance"
_NAME = re.compile(rf"{PREFIX}-(?P<run>.+-\d{{6}}-\d{{6}}-[a-z2-7]{{4}})-(?P<part>.+)")

_BUCKET = re.compile(rf"{PREFIX}-\d+-(?P<region>[a-z0-9-]+)")


@dataclass(frozen=True)
class Leftover:
    """One thing in the account that a run made."""

    kind: str
    id: str
    run: str
    """Empty when the thing doesn't say."""
    detail: str = ""
    expires_at: datetime | None = None
    home: str = ""
    """The region of its run's bucket, which is the run's own; empty when it doesn't say."""
    bills: Bills | None = Bills()  # noqa: RUF009 - frozen
    """None for a kind that no run makes: it may cost anything."""

    def aged(self, now: datetime) -> Leftover:
        """The same, saying how long it has been overdue, if it is."""
        if self.expires_at is None or self.expires_at > now:
            return self
        minutes = int((now - self.expires_at).total_seconds() // 60)
        words = f"{self.detail}, expired {minutes} min ago"
        return replace(self, detail=words.removeprefix(", "))


@boundary()
def leftovers(session: Session, run_id: str | None = None) -> list[Leftover]:
    """All that a run has in the account, or all that any run has in this region.

    Runs that are going on have much of it. The results bucket is never part of it.

    Raises:
        CredentialsError, ApiError, CloudError: what can't be seen is not reported as gone.
    """
    return [
        *regional(session, run_id),
        *global_ones(session, run_id),
    ]


@boundary()
def regional(session: Session, run_id: str | None = None) -> list[Leftover]:
    """Of EC2, the scheduler, SQS and SSM, in this session's region."""
    return [item for look in _looks(session, run_id).values() for item in look()]


@dataclass(frozen=True)
class Seen:
    """What a region has of all runs, as far as it could be looked at."""

    items: list[Leftover]
    unseen: dict[str, str] = field(default_factory=dict)
    """What of it could not be looked at, such as `SSM`, with the reason."""


def seen_in(session: Session) -> Seen:
    """The same of all runs, where one service that is out doesn't hide what the others have.

    A service may refuse credentials that EC2 has just taken: that, too, is of this service alone.

    Raises:
        CloudError: nothing that follows would be answered either.
        CredentialsError, ApiError: the instances can't be seen, which bill: it's as if the
            region wasn't.
    """
    found, unseen = list[Leftover](), dict[str, str]()
    for name, look in _looks(session, None).items():
        try:
            with boundary():
                found += look()
        except CloudError:
            raise
        except GpurunError as error:
            if name == _FIRST:
                raise
            unseen[name] = error.message
    return Seen(found, unseen)


@boundary()
def global_ones(session: Session, run_id: str | None = None) -> list[Leftover]:
    """Of IAM, which knows no regions."""
    if run_id is None:
        return list(_all_roles(session))
    parts = (BOX, KILL)
    found = [_role(session, named(run_id, part)) for part in parts]
    return [item for item in (*found, _profile(session, named(run_id, BOX))) if item]


def _looks(session: Session, run_id: str | None) -> dict[str, Callable[[], list[Leftover]]]:
    """Each thing to ask for, by the name of what is asked; the instances first."""
    asks: dict[str, Callable[..., Iterator[Leftover]]] = {
        **{f"EC2 {kind.name}": partial(_of_kind, kind=kind) for kind in KINDS},
        "EC2 tags": _of_other_kinds,
        "scheduler": _kills,
        "SQS": _queues,
        "SSM": _secrets,
    }
    return {name: partial(_all, ask, session, run_id) for name, ask in asks.items()}


def _all(
    ask: Callable[..., Iterator[Leftover]], session: Session, run_id: str | None
) -> list[Leftover]:
    return list(ask(session, run_id=run_id))


def _of_kind(session: Session, run_id: str | None, *, kind: Kind) -> Iterator[Leftover]:
    for page in _pages(session, kind.operation, run_id):
        for row in kind.rows(page):
            if kind.state(row) not in kind.gone:
                tags = as_map(row.get("Tags") or row.get("TagSet") or [])
                item = _leftover(kind.name, row[kind.id_key], tags, kind.state(row))
                yield replace(item, bills=kind.bills(row))


def _pages(session: Session, operation: str, run_id: str | None) -> Iterator[Any]:
    ec2: Any = session.client("ec2")
    filters = of_run(run_id) if run_id else [where("tag-key", tag.RUN)]
    if ec2.can_paginate(operation):
        yield from ec2.get_paginator(operation).paginate(Filters=filters)
    else:
        yield getattr(ec2, operation)(Filters=filters)


def _of_other_kinds(session: Session, run_id: str | None) -> Iterator[Leftover]:
    filters = [where("key", tag.RUN), *([where("value", run_id)] if run_id else [])]
    known = {kind.name for kind in KINDS}
    for page in session.client("ec2").get_paginator("describe_tags").paginate(Filters=filters):
        for row in page["Tags"]:
            if row["ResourceType"] not in known:
                kind, run = row["ResourceType"], row["Value"]
                bills = Bills(addresses=1) if kind == "elastic-ip" else None
                yield Leftover(kind, row["ResourceId"], run, bills=bills)


def _kills(session: Session, run_id: str | None) -> Iterator[Leftover]:
    for name in schedules.find_kills(session, run_id):
        at = schedules.fires_at(session, name)
        yield Leftover("schedule", name, run_id or _run_of(name), "", at)


def _queues(session: Session, run_id: str | None) -> Iterator[Leftover]:
    for name in dead_letters.find_queues(session, run_id):
        tags = dead_letters.tags_of(session, name)
        if tags is not None:
            yield _leftover("queue", name, tags)


def _secrets(session: Session, run_id: str | None) -> Iterator[Leftover]:
    """What this machine's environment lent to runs; never what it holds."""
    for lent in secrets.find_lent(session, run_id):
        yield Leftover("secret", lent.name, lent.run, "", lent.expires_at)


def _all_roles(session: Session) -> Iterator[Leftover]:
    iam = session.client("iam")
    for roles in iam.get_paginator("list_roles").paginate(PathPrefix=PATH):
        for entry in roles["Roles"]:
            item = _role(session, entry["RoleName"])
            if item:
                yield item
    for profiles in iam.get_paginator("list_instance_profiles").paginate(PathPrefix=PATH):
        for profile in profiles["InstanceProfiles"]:
            found = _profile(session, profile["InstanceProfileName"])
            if found:
                yield found


def _role(session: Session, name: str) -> Leftover | None:
    try:
        found = session.client("iam").get_role(RoleName=name)["Role"]
    except Exception as error:
        if not is_missing(error):
            raise
        return None
    return _leftover("role", name, as_map(found.get("Tags", [])))


def _profile(session: Session, name: str) -> Leftover | None:
    try:
        found = session.client("iam").get_instance_profile(InstanceProfileName=name)
    except Exception as error:
        if not is_missing(error):
            raise
        return None
    tags = as_map(found["InstanceProfile"].get("Tags", []))
    return _leftover("instance-profile", name, tags)


def _leftover(kind: str, name: str, tags: dict[str, str], detail: str = "") -> Leftover:
    run = tags.get(tag.RUN, "") or _run_of(name)
    bucket = _BUCKET.fullmatch(tags.get(tag.BUCKET, ""))
    home = bucket["region"] if bucket else ""
    return Leftover(kind, name, run, detail, parse_time(tags.get(tag.EXPIRES_AT)), home)


def _run_of(name: str) -> str:
    """The run in a name of ours; names are all that schedules have."""
    match = _NAME.fullmatch(name)
    return match["run"] if match else ""
