"""SSM's automation that ends instances: what it refuses at once, and what it does afterwards.

Whoever starts it is told whether it could start; what its role may not do then fails unheard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.localcloud import policy
from tests.faults.cloud import life
from tests.faults.cloud.access import may_be_assumed
from tests.faults.cloud.account import Account
from tests.faults.cloud.iam import Role
from tests.faults.cloud.instance import BY_A_CALL, Instance
from tests.faults.cloud.refusal import Refused

SERVICE = "ssm.amazonaws.com"
TERMINATE = "AWS-TerminateEC2Instance"
_PARAMETER, _ROLE = "InstanceId", "AutomationAssumeRole"
_LOOKS = ("tag:GetResources", "ec2:DescribeInstances", "ec2:DescribeInstanceStatus")


def checked(asked: dict[str, Any]) -> tuple[str, str, str]:
    """Key and value of the tag, and the role's ARN; raises Refused for what can't start."""
    name, targets = asked.get("DocumentName", ""), asked.get("Targets") or []
    if name != TERMINATE:
        raise Refused("AutomationDefinitionNotFoundException", f"{name} doesn't exist.")
    if len(targets) > 1:
        raise Refused("ValidationException", "Value at 'targets' failed to satisfy constraint")
    if not targets or asked.get("TargetParameterName") != _PARAMETER:
        raise _wrong(f"Targets and the TargetParameterName {_PARAMETER} go together.")
    key, values = targets[0]["Key"], targets[0]["Values"]
    if not key.startswith("tag:") or len(values) != 1:
        raise Refused("InvalidTarget", "Only one tag with one value can be specified.")
    given = asked.get("Parameters", {})
    if set(given) != {_ROLE} or len(given[_ROLE]) != 1:
        raise _wrong(f"Beside its target, {TERMINATE} takes {_ROLE}.")
    return key[4:], values[0], given[_ROLE][0]


def start(account: Account, region: str, asked: dict[str, Any]) -> str:
    """The execution's id; it finds its instances when it gets to it."""
    key, value, arn = checked(asked)
    role = next((role for role in account.roles.values() if role.arn == arn), None)
    number = account.number()
    execution = f"arn:aws:ssm:{region}:{account.id}:automation-execution/{number}"
    if role is None or not may_be_assumed(account, role, SERVICE, execution):
        raise _wrong("The defined assume role is unable to be assumed.")
    act = _running(account, region, role, (key, value))
    account.timeline.after(account.rules.automation_s, act)
    return f"00000000-0000-0000-0000-{number:012d}"


def _wrong(message: str) -> Refused:
    return Refused("InvalidAutomationExecutionParametersException", message)


def _running(
    account: Account, region: str, role: Role, tag: tuple[str, str]
) -> Callable[[], None]:
    return lambda: _run(account, region, role, tag)


def _run(account: Account, region: str, role: Role, tag: tuple[str, str]) -> None:
    if not all(policy.allows(role.documents, look, "*", {}) for look in _LOOKS):
        return
    for instance in list(account.visible(account.region(region).instances)):
        if tag in instance.tags.items() and _may_end(account, role, instance):
            life.end(account, instance, BY_A_CALL)


def _may_end(account: Account, role: Role, instance: Instance) -> bool:
    arn = f"arn:aws:ec2:{instance.region}:{account.id}:instance/{instance.id}"
    context = {f"aws:ResourceTag/{key}": value for key, value in instance.tags.items()}
    if instance.protected:
        return False
    return policy.allows(role.documents, "ec2:TerminateInstances", arn, context)
