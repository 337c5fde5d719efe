"""Whether this machine's clock agrees with AWS's, which dates every answer.

Deadlines are absolute times, made from this machine's clock: ahead of AWS it would buy boxes more
life than was reserved, behind it boxes would be launched whose time is over.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from orchestrator.aws.refusals import boundary
from orchestrator.errors import ClockWrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.aws.session import Session

ALLOWED = timedelta(minutes=1)
"""A third of the slack that every worst case has, as the schedule may be a minute late too."""


def check_clock(session: Session, now: Callable[[], datetime]) -> None:
    """Compare `now()` with the date of an answer; one that has none says nothing.

    Raises:
        ClockWrong: they are more than a minute apart.
    """
    theirs = _asked(session)
    ahead = now() - theirs if theirs else timedelta()
    if abs(ahead) > ALLOWED:
        way = "ahead of" if ahead > timedelta() else "behind"
        raise ClockWrong(
            f"This machine's clock is {abs(ahead).total_seconds():.0f} s {way} AWS's, "
            f"{theirs:%d %b %Y %H:%M:%S} UTC: no deadline would hold, and nothing is launched.",
            hint="Set it right (sudo timedatectl set-ntp true), then type the command again.",
        )


@boundary()
def _asked(session: Session) -> datetime | None:
    answer = session.client("ec2").describe_availability_zones()
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return parsedate_to_datetime(headers["date"]).astimezone(UTC)
    except (KeyError, ValueError):
        return None
