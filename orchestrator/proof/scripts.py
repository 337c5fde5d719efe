"""What the boxes boot: the rendered user data of a run, whole or wedged at a chosen place."""

from __future__ import annotations

from orchestrator.plan import Plan
from orchestrator.proof.design import AGENT, HALTED, TIMER
from orchestrator.render import render_user_data

WEDGE = "while :; do sleep 5; done\n"
WEDGED = f"#!/bin/bash\n{WEDGE}"
HALT = f"#!/bin/bash\nhalt\n{WEDGE}"
# Before this line the power-off is armed and nothing is asked of anybody.
_ARMED = "\nexport AWS_REGION="


def script_of(
    plan: Plan, box: str, *, run_id: str, bucket: str, payload_sha256: str, poweroff_command: str
) -> str:
    """The user data of one of the proof's boxes."""
    if box not in (AGENT, TIMER):
        return HALT if box == HALTED else WEDGED
    whole = render_user_data(
        plan,
        box,
        run_id=run_id,
        bucket=bucket,
        payload_sha256=payload_sha256,
        poweroff_command=poweroff_command,
    )
    return whole if box == AGENT else wedged_once_armed(whole)


def wedged_once_armed(script: str) -> str:
    """A box whose power-off is armed as on every run, and on which nothing else ever happens.

    Raises:
        ValueError: the script doesn't arm its power-off before anything else.
    """
    head, found, _ = script.partition(_ARMED)
    if not found or "end_box" not in head or "python3" in head:
        raise ValueError("the user data doesn't begin by arming the power-off")
    return f"{head}\n{WEDGE}"
