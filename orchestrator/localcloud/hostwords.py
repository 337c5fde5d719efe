"""Scripts that could stop the host: refused before a plain-process box would run them.

Such a box has no namespace of its own, and a login shell or an absolute path passes by anything
put in front of PATH. So its scripts power off through the variable GPURUN_POWEROFF only, and may
not name a host command for it at all, not even in a comment.
"""

from __future__ import annotations

import re

COMMANDS = (
    *("shutdown", "poweroff", "reboot", "halt", "systemctl", "telinit", "loginctl", "busctl"),
    *("sysrq", "sysrq-trigger", "kexec"),
)
_NAMED = re.compile(rb"(?<![\w-])(" + "|".join(COMMANDS).encode() + rb")(?![\w-])")
_INIT = re.compile(rb"(?<![\w-])init\s+[06]\b")


def refusal(script: bytes) -> str:
    """Why the script is refused, with the line; empty where it may run."""
    for number, line in enumerate(script.splitlines(), start=1):
        if found := _NAMED.search(line) or _INIT.search(line):
            return (
                f"User data line {number} names {found[0].decode()!r}: boxes that run as plain "
                "processes of this machine power off by $GPURUN_POWEROFF only"
            )
    return ""
