"""`gpurun rescue`: a box's results over SSH, when S3 is what is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.reach import reach
from orchestrator.rescue import Rescued, command_for, receive

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.settings import CloudName

QUIET_S = 60
"""How long nothing may come from the box before it counts as lost."""


def rescue_box(run_id: str, box: str, cloud: CloudName, to: Path) -> Rescued:
    """Bring what the box's jobs have made, verified; the box goes on with what it does.

    Raises:
        RemoteError: the box isn't running, or can't be reached.
        FolderError: `to` can't take it.
    """
    remote = reach(run_id, box, cloud)
    with remote.stream(command_for(box), quiet_s=QUIET_S) as stream:
        return receive(stream, run_id, box, to)
