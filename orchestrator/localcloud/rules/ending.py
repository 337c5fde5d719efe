"""TerminateInstances as EC2 answers it, and interfaces that outlive their instance for a while."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Instance
from moto.ec2.responses.instances import InstanceResponse

from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import StrictRules


def install(patches: Patches, rules: StrictRules) -> None:
    patches.replace(Instance, "terminate", lambda stock: _terminate(stock, rules))
    patches.replace(EC2Backend, "terminate_instances", _all_or_none)
    patches.replace(InstanceResponse, "terminate_instances", _response)
    patches.replace(EC2Backend, "all_reservations", lambda stock: _settled(stock, rules))
    for name in ("get_all_network_interfaces", "describe_network_interfaces"):
        patches.replace(EC2Backend, name, lambda stock: _pruned(stock, rules))


def holders(backend: Any, rules: StrictRules) -> list[Any]:
    """Instances whose network interfaces still exist."""
    found = [i for reservation in backend.all_reservations() for i in reservation.instances]
    return [i for i in found if not _interfaces_gone(i, rules)]


def interfaces(backend: Any, rules: StrictRules) -> list[Any]:
    """Network interfaces that exist, whatever they belong to."""
    return [
        nic
        for nic in backend.enis.values()
        if nic.instance is None or not _interfaces_gone(nic.instance, rules)
    ]


def _interfaces_gone(instance: Any, rules: StrictRules) -> bool:
    if instance._state.name != "terminated":
        return False
    gone_at = instance.strict_terminated_at + timedelta(seconds=rules.linger_s)
    return bool(rules.now() >= gone_at)


def _terminate(stock: Any, rules: StrictRules) -> Any:
    def terminate(self: Any) -> Any:
        if self._state.name in ("shutting-down", "terminated"):
            return copy.copy(self._state)
        for nic in self.nics.values():
            nic.delete_on_termination = False  # moto would delete it at once
        previous = stock(self)
        for nic in self.nics.values():
            nic.public_ip = None
        self.strict_ended_at = rules.now()
        rules.life.ending(self)
        return previous

    return terminate


def _all_or_none(stock: Any) -> Any:
    def terminate_instances(self: Any, instance_ids: list[str]) -> Any:
        for instance in self.get_multi_instances_by_id(instance_ids):
            if str(instance.disable_api_termination).lower() == "true":
                raise EC2ClientError(
                    "OperationNotPermitted",
                    f"The instance '{instance.id}' may not be terminated. Modify its "
                    "'disableApiTermination' instance attribute and try again.",
                )
        return stock(self, instance_ids)

    return terminate_instances


def _response(stock: Any) -> Any:
    def terminate_instances(self: Any) -> Any:
        answer = stock(self)
        for entry in answer.result["TerminatingInstances"]:
            if entry["PreviousState"].name == "terminated":
                entry["CurrentState"] = {"Code": 48, "Name": "terminated"}
        return answer

    return terminate_instances


def _settled(stock: Any, rules: StrictRules) -> Any:
    def all_reservations(self: Any, filters: Any = None) -> Any:
        for reservation in list(self.reservations.values()):
            for instance in reservation.instances:
                rules.life.settle(instance)
        return stock(self, filters)

    return all_reservations


def _pruned(stock: Any, rules: StrictRules) -> Any:
    def network_interfaces(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.all_reservations()
        for eni_id, eni in list(self.enis.items()):
            if eni.instance is not None and _interfaces_gone(eni.instance, rules):
                del self.enis[eni_id]
        return stock(self, *args, **kwargs)

    return network_interfaces
