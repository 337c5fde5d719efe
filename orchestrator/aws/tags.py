"""Names and tags: how everything that a run creates is found again without any local memory.

The tags go into the creating call. A run id becomes part of names, policies and tag filters, in
which `*` is a wildcard: an id that isn't one is refused here, before it can widen anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from orchestrator.errors import RunNotFound

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import ResourceTypeType
    from mypy_boto3_ec2.type_defs import FilterTypeDef, TagSpecificationTypeDef

PREFIX = "gpurun"
# What `gpurun aws setup` makes: it belongs to the account, never to a run.
REAPER = f"{PREFIX}-reaper"
RUN = f"{PREFIX}:run"
ROLE = f"{PREFIX}:role"
BOX = f"{PREFIX}:box"
ATTEMPT = f"{PREFIX}:attempt"
GUARD = f"{PREFIX}:guard"
"""Of instances only: what a box's guard ends. SSM takes one tag: its value names run and box."""
GUARD_SUFFIX = ".tag"
"""Of the name of a box's guard: no box's name has a dot, so it is never another box's schedule."""
OWNER = f"{PREFIX}:owner"
EXPIRES_AT = f"{PREFIX}:expires-at"
BUCKET = f"{PREFIX}:bucket"
PRICE = f"{PREFIX}:price-per-hour"
SSH_PORT = f"{PREFIX}:ssh-port"

_RUN_ID = re.compile(r"[a-z][a-z0-9-]{0,47}", re.ASCII)
# What IAM and EC2 both take in a tag's value.
_NOT_IN_VALUES = re.compile(r"[^A-Za-z0-9 _.:/=+@-]")


def checked(run_id: str) -> str:
    """The run id itself.

    Raises:
        RunNotFound: it can't be the id of a run.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise RunNotFound(
            f"{run_id!r} can't be a run's id: lower-case letters, digits and dashes",
            hint="gpurun status lists the runs of this account.",
        )
    return run_id


def named(run_id: str, part: str = "") -> str:
    """`gpurun-<run>` or `gpurun-<run>-<part>`: for the kinds that have names but no tags."""
    return f"{PREFIX}-{checked(run_id)}-{part}" if part else f"{PREFIX}-{checked(run_id)}"


def guarded(run_id: str, box: str) -> str:
    """The value of the guard's tag: of all attempts of the box, and of nothing else."""
    return f"{checked(run_id)}/{box}"


def of_run(run_id: str, **more: str) -> list[FilterTypeDef]:
    """An EC2 filter for what a run owns; `more` are further tags of ours (`role="vpc"`)."""
    tags = {RUN: checked(run_id)} | {f"{PREFIX}:{key}": more[key] for key in more}
    return [where(f"tag:{key}", value) for key, value in tags.items()]


def where(name: str, *values: str) -> FilterTypeDef:
    """One of EC2's filters; its values are alternatives."""
    return {"Name": name, "Values": values}


def as_map(tags: Iterable[Any]) -> dict[str, str]:
    """AWS's list of Key/Value pairs as a dictionary."""
    return {tag["Key"]: tag["Value"] for tag in tags}


def parse_time(value: str | None) -> datetime | None:
    """The time of an `expires-at` tag in UTC; None if there is none or it is unreadable."""
    try:
        at = datetime.fromisoformat(value or "")
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else None


def parse_price(value: str | None) -> Decimal | None:
    """The amount of a `price-per-hour` tag; None if there is none or it is unreadable."""
    try:
        price = Decimal(value or "")
    except InvalidOperation:
        return None
    return price if price.is_finite() else None


def parse_count(value: str | None, otherwise: int) -> int:
    """The number in a tag, which a person may have changed."""
    return int(value) if value and value.isascii() and value.isdecimal() else otherwise


@dataclass(frozen=True)
class RunTags:
    """What everything of one run is tagged with."""

    run_id: str
    owner: str
    expires_at: datetime
    """Aware. When the last box must be gone; what is older is ended by `gpurun sweep`. What goes
    with a box is tagged with its box's own time instead."""
    bucket: str

    def __post_init__(self) -> None:
        checked(self.run_id)

    def as_list(self, role: str, name: str, **extra: str) -> list[Any]:
        """Key/Value pairs; `extra` keys get our prefix, with dashes for underscores."""
        tags = {
            RUN: self.run_id,
            ROLE: role,
            OWNER: _NOT_IN_VALUES.sub("-", self.owner)[:255],
            EXPIRES_AT: self.expires_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            BUCKET: self.bucket,
            "Name": name,
        }
        tags |= {f"{PREFIX}:{key.replace('_', '-')}": extra[key] for key in extra}
        return [{"Key": key, "Value": value} for key, value in tags.items()]

    def spec(
        self, *kinds: ResourceTypeType, role: str, name: str = "", **extra: str
    ) -> list[TagSpecificationTypeDef]:
        """`TagSpecifications` for a creating call: the same tags on each of `kinds`."""
        tags = self.as_list(role, name or named(self.run_id, role), **extra)
        return [{"ResourceType": kind, "Tags": tags} for kind in kinds]
