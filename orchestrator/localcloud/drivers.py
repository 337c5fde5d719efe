"""Choosing how boxes run: bubblewrap where a functional probe succeeds, else plain processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.errors import CloudError
from orchestrator.localcloud import bubblewrap, hostwords, plain
from orchestrator.localcloud.box import Box, BoxSpec


@dataclass(frozen=True)
class Driver:
    """A way to run boxes. `check_user_data` answers why it won't start a script, or nothing."""

    name: str
    make_box: Callable[[BoxSpec], Box]
    check_user_data: Callable[[bytes], str]


BWRAP = Driver("bwrap", bubblewrap.BubblewrapBox, lambda _user_data: "")
PROCESS = Driver("process", plain.PlainBox, hostwords.refusal)


def choose(wanted: str, *, as_root: bool) -> Driver:
    """`auto`, `bwrap` or `process`; raises CloudError with what to install or to pass."""
    why_not = "" if wanted == "process" else bubblewrap.usable()
    if wanted != "process" and not why_not:
        return BWRAP
    if wanted == "bwrap":
        raise CloudError(
            f"bubblewrap boxes don't work here: {why_not}",
            hint="apt-get install bubblewrap, or start the cloud with --driver process",
        )
    if os.geteuid() == 0 and not as_root:
        raise CloudError(
            "plain-process boxes would run as root, with nothing between them and this machine"
            + (f" (bubblewrap: {why_not})" if why_not else ""),
            hint="apt-get install bubblewrap, use an ordinary user, or pass --as-root",
        )
    return PROCESS
