"""Roles and instance profiles that other services learn of only after a while."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from moto.iam.models import IAMBackend, iam_backends
from moto.utilities.utils import get_partition

from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import StrictRules


def install(patches: Patches, rules: StrictRules) -> None:
    for name in ("create_role", "create_instance_profile"):
        patches.replace(IAMBackend, name, lambda stock: _dated(stock, rules))


def _dated(stock: Any, rules: StrictRules) -> Any:
    def create(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = stock(self, *args, **kwargs)
        made.strict_created_at = rules.now()
        return made

    return create


def role_by_arn(account_id: str, region: str, arn: str) -> Any:
    """The role, or None."""
    roles = iam_backends[account_id][get_partition(region)].roles.values()
    return next((role for role in roles if role.arn == arn), None)


def can_be_assumed(role: Any, service: str, rules: StrictRules) -> bool:
    """Whether the role's trust policy names the service, and the role is old enough."""
    if rules.now() < role.strict_created_at + timedelta(seconds=rules.role_delay_s):
        return False
    document = json.loads(role.assume_role_policy_document)
    statements = document.get("Statement", [])
    for statement in statements if isinstance(statements, list) else [statements]:
        principals = statement.get("Principal", {}).get("Service", [])
        named = [principals] if isinstance(principals, str) else principals
        if statement.get("Effect") == "Allow" and service in named:
            return True
    return False
