"""A run's ways out: the internet gateway with its route, and the free gateway to S3."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from orchestrator.aws.refusals import code, is_missing
from orchestrator.aws.removal import remove
from orchestrator.aws.tags import RunTags, of_run, where
from orchestrator.aws.waits import DEPENDENCY_S, PROPAGATION_S
from orchestrator.errors import ApiError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, RouteTableTypeDef

    from orchestrator.aws.session import Session

_EVERYWHERE = "0.0.0.0/0"


def ensure_internet(session: Session, tags: RunTags, vpc_id: str) -> str:
    """An internet gateway, attached, and the default route to it in the main route table."""
    gateway_id, attached = _gateway(session, tags, vpc_id)
    if not attached:
        _attach(session, gateway_id, vpc_id)
    ec2, table = session.client("ec2"), main_table(session, vpc_id)
    session.patience.retry(
        lambda: ec2.create_tags(
            Resources=[table["RouteTableId"]], Tags=tags.as_list("routes", f"{vpc_id}-main")
        ),
        when=is_missing,
        timeout_s=PROPAGATION_S,
    )
    _route(session, table, gateway_id)
    return gateway_id


def ensure_s3_endpoint(session: Session, tags: RunTags, vpc_id: str) -> str:
    """S3 without leaving AWS, at no price.

    The endpoint's policy stays open: what a box may do is its role's business, and model hubs
    serve downloads from buckets of their own.
    """
    ec2 = session.client("ec2")
    for endpoint in live_endpoints(session, vpc_id, of_run(tags.run_id), going=False):
        return endpoint
    table_id = main_table(session, vpc_id)["RouteTableId"]
    made = session.patience.retry(
        lambda: ec2.create_vpc_endpoint(
            VpcId=vpc_id,
            ServiceName=f"com.amazonaws.{session.region}.s3",
            VpcEndpointType="Gateway",
            RouteTableIds=[table_id],
            ClientToken=hashlib.sha256(f"{tags.run_id} {vpc_id} s3".encode()).hexdigest(),
            TagSpecifications=tags.spec("vpc-endpoint", role="s3-endpoint"),
        ),
        when=is_missing,
        timeout_s=PROPAGATION_S,
    )
    return made["VpcEndpoint"]["VpcEndpointId"]


def delete_endpoints(session: Session, vpc_id: str, run_id: str) -> None:
    """Delete the run's endpoints in the VPC and wait until they are gone.

    Raises:
        ApiError: EC2 kept one; its answer is a success with a list of failures.
    """
    ours = of_run(run_id)
    found = live_endpoints(session, vpc_id, ours, going=False)
    if found:
        _delete_endpoints(session, found)
    session.patience.until(
        lambda: None if live_endpoints(session, vpc_id, ours) else True, timeout_s=DEPENDENCY_S
    )


def _delete_endpoints(session: Session, ids: list[str]) -> None:
    answer = session.client("ec2").delete_vpc_endpoints(VpcEndpointIds=ids)
    kept = [
        f"{item.get('ResourceId')}: {item.get('Error', {}).get('Message')}"
        for item in answer.get("Unsuccessful", [])
        if not str(item.get("Error", {}).get("Code", "")).endswith(".NotFound")
    ]
    if kept:
        raise ApiError(f"EC2 keeps endpoints: {'; '.join(kept)}")


def delete_gateways(session: Session, vpc_id: str, run_id: str) -> None:
    """Detach and delete the run's, once no public address of the VPC is in use any more."""
    ec2 = session.client("ec2")
    filters = [where("attachment.vpc-id", vpc_id), *of_run(run_id)]
    for gateway in ec2.describe_internet_gateways(Filters=filters)["InternetGateways"]:
        name = gateway["InternetGatewayId"]
        remove(session, ec2.detach_internet_gateway, InternetGatewayId=name, VpcId=vpc_id)
        remove(session, ec2.delete_internet_gateway, InternetGatewayId=name)


def delete_loose_gateways(session: Session, run_id: str) -> None:
    """Delete what was made or detached but never used: it belongs to no VPC."""
    ec2 = session.client("ec2")
    for gateway in ec2.describe_internet_gateways(Filters=of_run(run_id))["InternetGateways"]:
        if not gateway["Attachments"]:
            name = gateway["InternetGatewayId"]
            remove(session, ec2.delete_internet_gateway, InternetGatewayId=name)


def main_table(session: Session, vpc_id: str) -> RouteTableTypeDef:
    """The route table that comes and goes with the VPC."""
    ec2 = session.client("ec2")
    filters = [where("vpc-id", vpc_id), where("association.main", "true")]
    tables = session.patience.until(
        lambda: ec2.describe_route_tables(Filters=filters)["RouteTables"] or None,
        timeout_s=PROPAGATION_S,
    )
    if not tables:
        raise ApiError(f"EC2 shows no main route table of {vpc_id}")
    return tables[0]


def live_endpoints(
    session: Session, vpc_id: str, ours: list[FilterTypeDef], *, going: bool = True
) -> list[str]:
    """Ids of endpoints that aren't deleted, or with `going=False` aren't being deleted either.

    A deleted one stays listed for a while.
    """
    over = ("deleted",) if going else ("deleted", "deleting")
    found = session.client("ec2").describe_vpc_endpoints(Filters=[where("vpc-id", vpc_id), *ours])[
        "VpcEndpoints"
    ]
    return sorted(
        endpoint["VpcEndpointId"]
        for endpoint in found
        if endpoint.get("State", "").lower() not in over
    )


def _gateway(session: Session, tags: RunTags, vpc_id: str) -> tuple[str, bool]:
    """The run's gateway that is attached to this VPC, else a loose one, else a new one."""
    ec2 = session.client("ec2")
    found = ec2.describe_internet_gateways(Filters=of_run(tags.run_id))["InternetGateways"]
    vpcs = {
        gateway["InternetGatewayId"]: [link.get("VpcId") for link in gateway["Attachments"]]
        for gateway in sorted(found, key=lambda gateway: gateway["InternetGatewayId"])
    }
    here = [name for name, where_to in vpcs.items() if vpc_id in where_to]
    loose = [name for name, where_to in vpcs.items() if not where_to]
    if here or loose:
        return (here or loose)[0], bool(here)
    made = ec2.create_internet_gateway(TagSpecifications=tags.spec("internet-gateway", role="igw"))
    return made["InternetGateway"]["InternetGatewayId"], False


def _attach(session: Session, gateway_id: str, vpc_id: str) -> None:
    ec2 = session.client("ec2")
    try:
        session.patience.retry(
            lambda: ec2.attach_internet_gateway(InternetGatewayId=gateway_id, VpcId=vpc_id),
            when=is_missing,
            timeout_s=PROPAGATION_S,
        )
    except Exception as error:
        if code(error) != "Resource.AlreadyAssociated":
            raise


def _route(session: Session, table: RouteTableTypeDef, gateway_id: str) -> None:
    """The default route; one that leads to a gateway of before is replaced."""
    ec2 = session.client("ec2")
    present = [
        route.get("GatewayId")
        for route in table["Routes"]
        if route.get("DestinationCidrBlock") == _EVERYWHERE
    ]
    if present == [gateway_id]:
        return
    write = ec2.replace_route if present else ec2.create_route
    session.patience.retry(
        lambda: write(
            RouteTableId=table["RouteTableId"],
            DestinationCidrBlock=_EVERYWHERE,
            GatewayId=gateway_id,
        ),
        when=is_missing,
        timeout_s=PROPAGATION_S,
    )
