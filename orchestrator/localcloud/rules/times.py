"""Launch and end times and the Date of each answer, by the rules' clock instead of the host's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moto.core import responses
from moto.ec2.models import instances

from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import StrictRules


def install(patches: Patches, rules: StrictRules) -> None:
    def utcnow() -> datetime:
        """Naive, as moto wants it."""
        return rules.now().astimezone(UTC).replace(tzinfo=None)

    for module in (responses, instances):
        # Any: `replace` sets an attribute, whether a class or a module has it.
        owner: Any = module
        patches.replace(owner, "utcnow", lambda _stock: utcnow)
