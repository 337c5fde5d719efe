"""EC2: internet gateways, routes and endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.faults.cloud.ec2_vpcs import Vpcs
from tests.faults.cloud.filters import matching
from tests.faults.cloud.refusal import Refused, in_use
from tests.faults.cloud.service import tags_of
from tests.faults.cloud.things import Endpoint, Gateway, Json, Table

_S3_PREFIXES = "pl-63a5400a"


class Ways(Vpcs):
    def create_internet_gateway(self, *, TagSpecifications: Iterable[Any] = ()) -> Json:
        gateway = Gateway(
            id=self._account.new_id("igw"),
            visible_at=self._account.visible_at(),
            tags=tags_of(TagSpecifications, "internet-gateway"),
        )
        self._region.gateways[gateway.id] = gateway
        return {"InternetGateway": gateway.describe()}

    def describe_internet_gateways(
        self, *, Filters: Iterable[Any] = (), InternetGatewayIds: Sequence[str] = ()
    ) -> Json:
        found = self._named("internet-gateway", self._region.gateways, InternetGatewayIds)
        return {"InternetGateways": [g.describe() for g in matching(found, Filters)]}

    def attach_internet_gateway(self, *, InternetGatewayId: str, VpcId: str) -> Json:
        gateway, vpc = self._gateway(InternetGatewayId), self._vpc(VpcId)
        if gateway.vpc_id:
            raise Refused(
                "Resource.AlreadyAssociated",
                f"resource {gateway.id} is already attached to network {gateway.vpc_id}",
            )
        if any(g.vpc_id == vpc.id for g in self._region.gateways.values()):
            raise Refused(
                "InvalidParameterValue",
                f"Network {vpc.id} already has an internet gateway attached",
            )
        gateway.vpc_id = vpc.id
        return {}

    def detach_internet_gateway(self, *, InternetGatewayId: str, VpcId: str) -> Json:
        gateway = self._gateway(InternetGatewayId)
        if gateway.vpc_id != VpcId:
            raise Refused(
                "Gateway.NotAttached",
                f"resource {gateway.id} is not attached to network {VpcId}",
            )
        nics = self._region.interfaces.values()
        if any(nic.vpc_id == VpcId and nic.public_ip for nic in nics):
            raise Refused(
                "DependencyViolation",
                f"Network {VpcId} has some mapped public address(es). Please unmap those public "
                "address(es) before detaching the gateway.",
            )
        gateway.vpc_id = None
        return {}

    def delete_internet_gateway(self, *, InternetGatewayId: str) -> Json:
        gateway = self._gateway(InternetGatewayId)
        if gateway.vpc_id:
            raise in_use(f"internetGateway '{gateway.id}'")
        del self._region.gateways[gateway.id]
        return {}

    def create_route_table(self, *, VpcId: str, TagSpecifications: Iterable[Any] = ()) -> Json:
        vpc = self._vpc(VpcId)
        table = Table(
            id=self._account.new_id("rtb"),
            visible_at=self._account.visible_at(),
            tags=tags_of(TagSpecifications, "route-table"),
            vpc_id=vpc.id,
            local=vpc.cidr,
        )
        self._region.tables[table.id] = table
        return {"RouteTable": table.describe()}

    def describe_route_tables(
        self, *, Filters: Iterable[Any] = (), RouteTableIds: Sequence[str] = ()
    ) -> Json:
        found = self._named("route-table", self._region.tables, RouteTableIds)
        return {"RouteTables": [table.describe() for table in matching(found, Filters)]}

    def associate_route_table(self, *, RouteTableId: str, SubnetId: str) -> Json:
        table = self._table(RouteTableId)
        self._account.find(self._region.subnets, "subnet", SubnetId)
        name = self._account.new_id("rtbassoc")
        table.subnets[name] = SubnetId
        return {"AssociationId": name}

    def disassociate_route_table(self, *, AssociationId: str) -> Json:
        for table in self._region.tables.values():
            if table.subnets.pop(AssociationId, None):
                return {}
        raise Refused("InvalidAssociationID.NotFound", f"no association {AssociationId}")

    def delete_route_table(self, *, RouteTableId: str) -> Json:
        table = self._table(RouteTableId)
        if table.main or table.subnets:
            raise in_use(f"routeTable '{table.id}'")
        del self._region.tables[table.id]
        return {}

    def create_route(
        self, *, RouteTableId: str, DestinationCidrBlock: str, GatewayId: str
    ) -> Json:
        table = self._table(RouteTableId)
        self._check_leads(table, GatewayId)
        if DestinationCidrBlock in table.routes:
            raise Refused(
                "RouteAlreadyExists",
                f"The route identified by {DestinationCidrBlock} already exists.",
            )
        table.routes[DestinationCidrBlock] = GatewayId
        return {"Return": True}

    def replace_route(
        self, *, RouteTableId: str, DestinationCidrBlock: str, GatewayId: str
    ) -> Json:
        table = self._table(RouteTableId)
        self._check_leads(table, GatewayId)
        self._check_route(table, DestinationCidrBlock)
        table.routes[DestinationCidrBlock] = GatewayId
        return {}

    def delete_route(self, *, RouteTableId: str, DestinationCidrBlock: str) -> Json:
        table = self._table(RouteTableId)
        self._check_route(table, DestinationCidrBlock)
        del table.routes[DestinationCidrBlock]
        return {}

    def create_vpc_endpoint(
        self,
        *,
        VpcId: str,
        ServiceName: str,
        VpcEndpointType: str = "Gateway",
        RouteTableIds: Sequence[str] = (),
        ClientToken: str = "",
        TagSpecifications: Iterable[Any] = (),
    ) -> Json:
        vpc = self._vpc(VpcId)
        for made in self._region.endpoints.values():
            if ClientToken and made.token == ClientToken and made.state == "available":
                return {"VpcEndpoint": made.describe(), "ClientToken": ClientToken}
        tables = [self._table(name) for name in RouteTableIds]
        endpoint = Endpoint(
            id=self._account.new_id("vpce"),
            visible_at=self._account.visible_at(),
            tags=tags_of(TagSpecifications, "vpc-endpoint"),
            vpc_id=vpc.id,
            service=ServiceName,
            tables=list(RouteTableIds),
            type=VpcEndpointType,
            token=ClientToken,
        )
        for table in tables:
            table.routes[_S3_PREFIXES] = endpoint.id
        self._region.endpoints[endpoint.id] = endpoint
        return {"VpcEndpoint": endpoint.describe()}

    def describe_vpc_endpoints(
        self, *, Filters: Iterable[Any] = (), VpcEndpointIds: Sequence[str] = ()
    ) -> Json:
        found = self._named("vpc-endpoint", self._region.endpoints, VpcEndpointIds)
        return {"VpcEndpoints": [e.describe() for e in matching(found, Filters)]}

    def delete_vpc_endpoints(self, *, VpcEndpointIds: Sequence[str]) -> Json:
        """A success that lists what it didn't do."""
        failed: list[Json] = []
        for name in VpcEndpointIds:
            endpoint = self._region.endpoints.get(name)
            if endpoint is None or endpoint.visible_at > self._account.timeline.time():
                error = {"Code": "InvalidVpcEndpoint.NotFound", "Message": "does not exist"}
                failed.append({"ResourceId": name, "Error": error})
            elif endpoint.state != "deleting":
                self._delete_endpoint(endpoint)
        return {"Unsuccessful": failed}

    def _delete_endpoint(self, endpoint: Endpoint) -> None:
        for table in self._region.tables.values():
            table.routes = {to: way for to, way in table.routes.items() if way != endpoint.id}
        if not self._rules.endpoint_linger_s:
            del self._region.endpoints[endpoint.id]
            return
        endpoint.state = "deleting"
        self._account.timeline.after(
            self._rules.endpoint_linger_s, lambda: self._forget(endpoint.id)
        )

    def _forget(self, endpoint_id: str) -> None:
        self._region.endpoints.pop(endpoint_id, None)

    def describe_nat_gateways(self, *, Filter: Iterable[Any] = ()) -> Json:
        """Nobody makes any here."""
        return {"NatGateways": []}

    def _gateway(self, name: str) -> Gateway:
        return self._account.find(self._region.gateways, "internet-gateway", name)

    def _table(self, name: str) -> Table:
        return self._account.find(self._region.tables, "route-table", name)

    def _check_leads(self, table: Table, gateway_id: str) -> None:
        gateway = self._gateway(gateway_id)
        if gateway.vpc_id != table.vpc_id:
            raise Refused(
                "InvalidParameterValue",
                f"route table {table.id} and network gateway {gateway.id} belong to different "
                "networks",
            )

    def _check_route(self, table: Table, destination: str) -> None:
        if destination not in table.routes:
            raise Refused(
                "InvalidRoute.NotFound",
                f"no route with destination-cidr-block {destination} in route table {table.id}",
            )
