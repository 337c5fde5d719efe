"""User data from a plan: the one script that a box gets; its first lines arm the power-off.

Values reach the shell only through the `sh` filter (quoted) or `line` (in comments, one line of
plain characters); everything else in the template is a number made here.
"""

from __future__ import annotations

import math
import re
import shlex
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from orchestrator.box.deadline import AHEAD_S

if TYPE_CHECKING:
    from orchestrator.plan import Plan
    from orchestrator.planned import PlannedBox

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
USER_DATA_BYTES = 16_384
"""What EC2 takes, before base64 (EC2 User Guide, "Run commands on your instance at launch")."""
POWEROFF = "poweroff"
POWEROFF_BY_VARIABLE = '"$GPURUN_POWEROFF"'
HARD = {POWEROFF: "poweroff -f -f", POWEROFF_BY_VARIABLE: POWEROFF_BY_VARIABLE}
HARD_AFTER = timedelta(minutes=5)
LATE_SHUTDOWN = timedelta(minutes=5)
"""How long before a shutdown logins are refused (shutdown(8)): it comes so much after the end."""
_SHUTS_DOWN = timedelta(minutes=2)
"""What rounding up to whole minutes takes, and the shutdown itself."""
FETCH_PATIENCE_S = 600


def render_user_data(
    plan: Plan,
    box_name: str,
    *,
    run_id: str,
    bucket: str,
    payload_sha256: str,
    poweroff_command: str = POWEROFF,
) -> str:
    """The user data of one box, at most 16,384 bytes.

    `poweroff_command` is `poweroff`, or `"$GPURUN_POWEROFF"` where the box is a plain process:
    then no command that could end the host is in the text. Raises KeyError for a box that isn't
    in the plan, ValueError for another power-off command or a script that is too long.
    """
    if poweroff_command not in HARD:
        raise ValueError(f"{poweroff_command!r} is neither of {', '.join(HARD)}")
    box = plan.box(box_name)
    script = render_text(
        "user_data.sh.j2",
        run=run_id,
        box=box.name,
        bucket=bucket,
        region=plan.region,
        end_at=math.floor(box.poweroff_at.timestamp()),
        limit_s=math.ceil((box.poweroff_at - plan.planned_at).total_seconds()),
        end_at_utc=_utc(box.poweroff_at),
        hard_at_utc=_utc(box.poweroff_at + HARD_AFTER),
        late_shutdown_min=_late_shutdown_min(box),
        ahead_s=AHEAD_S,
        poweroff=poweroff_command,
        poweroff_hard=HARD[poweroff_command],
        host_power=poweroff_command == POWEROFF,
        payload_key=f"runs/{run_id}/payload/{payload_sha256}.tar.gz",
        payload_sha256=payload_sha256,
        console_key=f"runs/{run_id}/boxes/{box.name}/console.log",
        patience_s=FETCH_PATIENCE_S,
        fetch_py=fetch_source(),
    )
    if len(script.encode()) > USER_DATA_BYTES:
        raise ValueError(
            f"user data has {len(script.encode())} bytes, EC2 takes {USER_DATA_BYTES}"
        )
    return script


def render_text(template: str, **values: object) -> str:
    """A template of `templates/` with its values; an unknown name in it raises UndefinedError."""
    return _environment().get_template(template).render(values)


def fetch_source() -> str:
    """The text of orchestrator.box.fetch, which runs on the box before there is a payload."""
    return (Path(__file__).parent / "box" / "fetch.py").read_text("utf-8").rstrip("\n")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=jinja2.select_autoescape(("html.j2",), default=False),
    )
    environment.filters |= {"sh": _sh, "line": _line}
    return environment


def _late_shutdown_min(box: PlannedBox) -> int:
    """How long after its end a box also shuts down; 0: not at all, as the cloud comes sooner."""
    sooner = box.cloud_at - box.poweroff_at <= LATE_SHUTDOWN + _SHUTS_DOWN
    return 0 if sooner else int(LATE_SHUTDOWN.total_seconds()) // 60


def _sh(value: object) -> str:
    text = str(value)
    if "\0" in text:
        raise ValueError(f"{text!r} can't be said to a shell")
    return shlex.quote(text)


def _line(value: object) -> str:
    return re.sub(r"[^A-Za-z0-9 .:+_-]", "?", str(value))


def _utc(at: datetime) -> str:
    """As systemd's OnCalendar= reads it (systemd.time(7))."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
