"""What IAM is asked when a schedule fires: each action on each resource, with its context.

Two targets are known: instances that are named by id, and the automation that ends instances. An
automation's own document has no account in its ARN, and lending it a role is a right of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from moto.ec2.models import ec2_backends

Ask = tuple[str, str, dict[str, str]]
"""Action, resource, context."""


def asked(account: str, region: str, action: str, arguments: Mapping[str, Any]) -> Iterator[Ask]:
    """All that must be allowed for the call to be made."""
    if action == "ssm:StartAutomationExecution":
        yield from _automation(account, region, action, arguments)
        return
    backend = ec2_backends[account][region]
    for instance_id in arguments.get("InstanceIds", ["*"]):
        tags = backend.tags.get(instance_id, {})
        context = {f"aws:ResourceTag/{name}": value for name, value in tags.items()}
        yield action, f"arn:aws:ec2:{region}:{account}:instance/{instance_id}", context


def _automation(
    account: str, region: str, action: str, arguments: Mapping[str, Any]
) -> Iterator[Ask]:
    """IAM has asked for the definition, and now asks for document and execution: here for all."""
    name = arguments.get("DocumentName", "")
    for resource in (
        f":automation-definition/{name}:$DEFAULT",
        f":document/{name}",
        f"{account}:automation-execution/new",
    ):
        yield action, f"arn:aws:ssm:{region}:{resource}", {}
    for arn in arguments.get("Parameters", {}).get("AutomationAssumeRole", []):
        yield "iam:PassRole", arn, {"iam:PassedToService": "ssm.amazonaws.com"}
