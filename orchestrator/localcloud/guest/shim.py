"""shutdown, poweroff, halt, reboot and systemctl of a box: they speak to the box's own pid 1.

What a command line means is decided by `order`; `main` only sends it. `halt` ends nothing, as on
EC2, where a halted instance runs and bills on.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from datetime import UTC, datetime, timedelta

CONTROL = "/run/gpurun/control.sock"
NO_RESTART = "a local box can't restart"


class NotSupported(Exception):
    """The command line asks for something a local box can't do."""


def order(name: str, args: list[str], now: datetime) -> dict[str, object]:
    """The order that this command line gives; raises NotSupported."""
    if name == "systemctl":
        verbs = [a for a in args if not a.startswith("-")]
        if not verbs or verbs[0] not in ("poweroff", "halt", "reboot"):
            raise NotSupported("System has not been booted with systemd as init system (PID 1).")
        name, args = verbs[0], [a for a in args if a != verbs[0]]
    if name == "reboot":
        raise NotSupported(NO_RESTART)
    if name == "shutdown":
        return _shutdown(args, now)
    off = name == "poweroff" or bool({"-p", "--poweroff"} & set(args))
    if off and "--halt" not in args:
        return {"op": "poweroff", "delay_s": 0.0, "force": bool({"-f", "--force"} & set(args))}
    return {"op": "halt"}


def _shutdown(args: list[str], now: datetime) -> dict[str, object]:
    letters = {letter for a in args if re.fullmatch("-[A-Za-z]+", a) for letter in a[1:]}
    if "c" in letters:
        return {"op": "cancel"}
    if "r" in letters or "--reboot" in args:
        raise NotSupported(NO_RESTART)
    if "H" in letters or "--halt" in args:
        return {"op": "halt"}
    when = next((a for a in args if not a.startswith("-")), "+1")
    return {"op": "poweroff", "delay_s": _delay_s(when, now), "force": False}


def _delay_s(when: str, now: datetime) -> float:
    if when == "now":
        return 0.0
    if re.fullmatch(r"\+?\d+", when):
        return 60.0 * int(when)
    if clock := re.fullmatch(r"(\d\d?):(\d\d)", when):
        due = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return ((due if due > now else due + timedelta(days=1)) - now).total_seconds()
    raise NotSupported(f"Failed to parse time specification: {when}")


def main() -> int:
    name, args = sys.argv[1], sys.argv[2:]
    try:
        message = order(name, args, datetime.now(UTC))
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(os.environ.get("GPURUN_CONTROL", CONTROL))
            control.sendall(json.dumps(message).encode() + b"\n")
            control.recv(16)
    except (NotSupported, ValueError, OSError) as wrong:
        sys.stderr.write(f"{name}: {wrong}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
