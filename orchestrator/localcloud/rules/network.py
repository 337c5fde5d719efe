"""DependencyViolation: what of a VPC can't be deleted while something still uses it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import DependencyViolationError, EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.responses.vpcs import VPCs

from orchestrator.localcloud.rules.ending import holders, interfaces
from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import StrictRules


def install(patches: Patches, rules: StrictRules) -> None:
    patches.replace(EC2Backend, "delete_subnet", lambda stock: _subnet(stock, rules))
    patches.replace(EC2Backend, "delete_security_group", lambda stock: _group(stock, rules))
    patches.replace(EC2Backend, "detach_internet_gateway", lambda stock: _gateway(stock, rules))
    patches.replace(EC2Backend, "delete_vpc", lambda stock: _vpc(stock, rules))
    patches.replace(EC2Backend, "delete_route_table", _route_table)
    patches.replace(EC2Backend, "delete_vpc_endpoints", lambda stock: _endpoints(stock, rules))
    patches.replace(EC2Backend, "describe_vpc_endpoints", lambda stock: _pruned(stock, rules))
    patches.replace(VPCs, "delete_vpc_endpoints", _unsuccessful)
    patches.replace(EC2Backend, "describe_tags", _tags)


def _blocked(what: str) -> DependencyViolationError:
    return DependencyViolationError(f"The {what} has dependencies and cannot be deleted.")


def _subnet(stock: Any, rules: StrictRules) -> Any:
    def delete_subnet(self: Any, subnet_id: str) -> Any:
        used = any(nic.subnet.id == subnet_id for nic in interfaces(self, rules))
        if used or any(i.subnet_id == subnet_id for i in holders(self, rules)):
            raise _blocked(f"subnet '{subnet_id}'")
        return stock(self, subnet_id)

    return delete_subnet


def _group(stock: Any, rules: StrictRules) -> Any:
    def delete_security_group(self: Any, name: Any = None, group_id: Any = None) -> Any:
        group = self.get_security_group_by_name_or_id(group_id or name)
        if group and not getattr(self, "strict_deleting_vpc", False):
            if group.name == "default":
                raise EC2ClientError(
                    "CannotDelete",
                    f'the specified group: "{group.id}" name: "default" cannot be deleted by a '
                    "user",
                )
            if _named_by_others(self, group.id) or _worn(self, rules, group.id):
                raise DependencyViolationError(f"resource {group.id} has a dependent object")
        return stock(self, name=name, group_id=group_id)

    return delete_security_group


def _named_by_others(backend: Any, group_id: str) -> bool:
    others = [g for of_vpc in backend.groups.values() for g in of_vpc.values() if g.id != group_id]
    rules = [rule for g in others for rule in (*g.ingress_rules, *g.egress_rules)]
    return any(group_id in repr(rule.source_group) for rule in rules)


def _worn(backend: Any, rules: StrictRules, group_id: str) -> bool:
    if any(group_id == group.id for nic in interfaces(backend, rules) for group in nic.group_set):
        return True
    for instance in holders(backend, rules):
        on_nics = {g.id for nic in instance.nics.values() for g in nic.group_set}
        if group_id in on_nics | {getattr(g, "id", g) for g in instance.security_groups}:
            return True
    return False


def _gateway(stock: Any, rules: StrictRules) -> Any:
    def detach_internet_gateway(self: Any, internet_gateway_id: str, vpc_id: str) -> Any:
        mapped = [a for a in self.addresses if a.eni and a.eni.subnet.vpc_id == vpc_id]
        if mapped or any(i.vpc_id == vpc_id and i.public_ip for i in holders(self, rules)):
            raise DependencyViolationError(
                f"Network {vpc_id} has some mapped public address(es). Please unmap those public "
                "address(es) before detaching the gateway."
            )
        return stock(self, internet_gateway_id, vpc_id)

    return detach_internet_gateway


def _vpc(stock: Any, rules: StrictRules) -> Any:
    def delete_vpc(self: Any, vpc_id: str) -> Any:
        _prune_endpoints(self, rules)
        gateways = [g for g in self.internet_gateways.values() if g.vpc and g.vpc.id == vpc_id]
        endpoints = [e for e in self.vpc_end_points.values() if e.vpc_id == vpc_id]
        groups = [g for g in self.groups.get(vpc_id, {}).values() if g.name != "default"]
        if gateways or endpoints or groups:
            raise _blocked(f"vpc '{vpc_id}'")
        # The default group and the main route table go with their VPC.
        self.strict_deleting_vpc = True
        try:
            return stock(self, vpc_id)
        finally:
            self.strict_deleting_vpc = False

    return delete_vpc


def _route_table(stock: Any) -> Any:
    def delete_route_table(self: Any, route_table_id: str) -> Any:
        main = self.get_route_table(route_table_id).main_association_id
        if main and not getattr(self, "strict_deleting_vpc", False):
            raise _blocked(f"routeTable '{route_table_id}'")
        return stock(self, route_table_id)

    return delete_route_table


def _endpoints(stock: Any, rules: StrictRules) -> Any:
    def delete_vpc_endpoints(self: Any, vpce_ids: Any = None) -> Any:
        found = [
            self.vpc_end_points[name] for name in vpce_ids or [] if name in self.vpc_end_points
        ]
        living = [endpoint for endpoint in found if endpoint.state != "deleting"]
        stock(self, [endpoint.id for endpoint in living])
        for endpoint in living:
            endpoint.state, endpoint.strict_deleted_at = "deleting", rules.now()
        _prune_endpoints(self, rules)

    return delete_vpc_endpoints


def _unsuccessful(stock: Any) -> Any:
    def delete_vpc_endpoints(self: Any) -> Any:
        """A success that lists what it didn't do."""
        asked = self._get_param("VpcEndpointIds", [])
        unknown = [name for name in asked if name not in self.ec2_backend.vpc_end_points]
        stock(self)
        return ActionResult({"Unsuccessful": [_no_endpoint(name) for name in unknown]})

    return delete_vpc_endpoints


def _no_endpoint(name: str) -> dict[str, Any]:
    message = f"The Vpc Endpoint Id '{name}' does not exist"
    error = {"Code": "InvalidVpcEndpoint.NotFound", "Message": message}
    return {"ResourceId": name, "Error": error}


def _prune_endpoints(backend: Any, rules: StrictRules) -> None:
    lingering = timedelta(seconds=rules.endpoint_linger_s)
    for endpoint in list(backend.vpc_end_points.values()):
        if endpoint.state == "deleting" and rules.now() >= endpoint.strict_deleted_at + lingering:
            del backend.vpc_end_points[endpoint.id]


def _pruned(stock: Any, rules: StrictRules) -> Any:
    def describe_vpc_endpoints(self: Any, *args: Any, **kwargs: Any) -> Any:
        _prune_endpoints(self, rules)
        return stock(self, *args, **kwargs)

    return describe_vpc_endpoints


def _tags(stock: Any) -> Any:
    def describe_tags(self: Any, filters: Any = None) -> Any:
        """moto remembers the tags of what was deleted; its own look-ups name the resource."""
        if filters and "resource-id" in filters:
            return stock(self, filters)
        living = {r.arn.rsplit("/", 1)[-1] for r in self.iter_tagged_resources()}
        living |= {*self.vpc_end_points, *self.network_acls}
        living |= {key.id for key in self.key_pairs.values()}
        groups = [g for of_vpc in self.groups.values() for g in of_vpc.values()]
        living |= {rule.id for g in groups for rule in (*g.ingress_rules, *g.egress_rules)}
        return [tag for tag in stock(self, filters) if tag["resource_id"] in living]

    return describe_tags
