"""StartAutomationExecution as SSM answers it, for the one runbook that ends instances.

moto has no automations. What is asked for wrongly is refused at once; what its role may not do
fails afterwards, and nobody who started it is told.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ssm.exceptions import SSMException
from moto.ssm.responses import SimpleSystemManagerResponse

from orchestrator.localcloud import policy
from orchestrator.localcloud.rules import identity
from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import StrictRules

SERVICE = "ssm.amazonaws.com"
TERMINATE = "AWS-TerminateEC2Instance"
_PARAMETER, _ROLE = "InstanceId", "AutomationAssumeRole"
_LOOKS = ("tag:GetResources", "ec2:DescribeInstances", "ec2:DescribeInstanceStatus")
_ALIVE = ("pending", "running", "stopping", "stopped")

_log = logging.getLogger(__name__)


def install(patches: Patches, rules: StrictRules) -> None:
    patches.replace(
        SimpleSystemManagerResponse, "start_automation_execution", lambda _stock: _start(rules)
    )


def checked(asked: Mapping[str, Any]) -> tuple[str, str, str]:
    """Key and value of the tag whose instances are to end, and the role's ARN.

    Raises:
        SSMException: such an automation could never start.
    """
    if asked.get("DocumentName") != TERMINATE:
        raise SSMException(
            "AutomationDefinitionNotFoundException",
            f"The Automation document {asked.get('DocumentName')} doesn't exist.",
        )
    targets = asked.get("Targets") or []
    if len(targets) > 1:
        raise SSMException(
            "ValidationException",
            "1 validation error detected: Value at 'targets' failed to satisfy constraint: "
            "Member must have length less than or equal to 1",
        )
    if not targets or asked.get("TargetParameterName") != _PARAMETER:
        raise _wrong(f"Targets and the TargetParameterName {_PARAMETER} go together.")
    key, values = str(targets[0].get("Key")), targets[0].get("Values", [])
    if not key.startswith("tag:") or len(values) != 1:
        raise SSMException("InvalidTarget", "Only one tag with one value can be specified.")
    given = asked.get("Parameters", {})
    if set(given) != {_ROLE} or len(given[_ROLE]) != 1:
        raise _wrong(f"Beside its target, {TERMINATE} takes {_ROLE}.")
    return key.removeprefix("tag:"), values[0], given[_ROLE][0]


def _wrong(message: str) -> SSMException:
    return SSMException("InvalidAutomationExecutionParametersException", message)


def _start(rules: StrictRules) -> Any:
    def start_automation_execution(self: Any) -> ActionResult:
        names = ("DocumentName", "TargetParameterName", "Targets", "Parameters")
        key, value, arn = checked({name: self._get_param(name) or {} for name in names})
        role = identity.role_by_arn(self.current_account, self.region, arn)
        if role is None or not identity.can_be_assumed(role, SERVICE, rules):
            raise _wrong("The defined assume role is unable to be assumed.")
        backend = ec2_backends[self.current_account][self.region]
        _run(backend, policy.documents_of(role), {key: value})
        return ActionResult({"AutomationExecutionId": str(uuid.uuid4())})

    return start_automation_execution


def _run(backend: Any, documents: list[dict[str, Any]], tag: Mapping[str, str]) -> None:
    """End what carries the tag now; what can't be ended doesn't keep the others from it."""
    lacking = [look for look in _LOOKS if not policy.allows(documents, look, "*", {})]
    if lacking:
        _log.warning("an automation failed: its role doesn't allow %s", ", ".join(lacking))
        return
    for instance_id in list(_carrying(backend, tag)):
        arn = f"arn:aws:ec2:{backend.region_name}:{backend.account_id}:instance/{instance_id}"
        tags = backend.tags.get(instance_id, {})
        context = {f"aws:ResourceTag/{name}": text for name, text in tags.items()}
        if not policy.allows(documents, "ec2:TerminateInstances", arn, context):
            _log.warning("an automation failed: its role doesn't allow to end %s", instance_id)
            continue
        try:
            backend.terminate_instances([instance_id])
        except EC2ClientError as refused:
            _log.warning("an automation failed to end %s: %s", instance_id, refused)


def _carrying(backend: Any, tag: Mapping[str, str]) -> Iterator[str]:
    for reservation in backend.all_reservations():
        for instance in reservation.instances:
            tags = backend.tags.get(instance.id, {})
            if instance._state.name in _ALIVE and tag.items() <= tags.items():
                yield instance.id
