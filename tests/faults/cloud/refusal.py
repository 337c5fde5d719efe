"""What an operation of the model raises to refuse; the client makes botocore's error of it."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError


class Refused(Exception):
    """One of AWS's error codes, with its text and HTTP status."""

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(code)
        self.code, self.message, self.status = code, message or code, status


def client_error(operation_name: str, refused: Refused) -> ClientError:
    """The error that boto3 raises."""
    answer: Any = {
        "Error": {"Code": refused.code, "Message": refused.message},
        "ResponseMetadata": {"HTTPStatusCode": refused.status, "RequestId": "model"},
    }
    return ClientError(answer, operation_name)


def not_found(kind: str, name: str) -> Refused:
    """EC2's refusal of an id that it doesn't know."""
    code = _NOT_FOUND[kind]
    return Refused(code, f"The {kind} ID '{name}' does not exist")


def in_use(what: str) -> Refused:
    return Refused("DependencyViolation", f"The {what} has dependencies and cannot be deleted.")


_NOT_FOUND = {
    "vpc": "InvalidVpcID.NotFound",
    "subnet": "InvalidSubnetID.NotFound",
    "internet-gateway": "InvalidInternetGatewayID.NotFound",
    "route-table": "InvalidRouteTableID.NotFound",
    "vpc-endpoint": "InvalidVpcEndpointId.NotFound",
    "security-group": "InvalidGroup.NotFound",
    "network-interface": "InvalidNetworkInterfaceID.NotFound",
    "instance": "InvalidInstanceID.NotFound",
    "volume": "InvalidVolume.NotFound",
    "snapshot": "InvalidSnapshot.NotFound",
    "key-pair": "InvalidKeyPair.NotFound",
    "elastic-ip": "InvalidAllocationID.NotFound",
    "image": "InvalidAMIID.NotFound",
    "spot-instances-request": "InvalidSpotInstanceRequestID.NotFound",
}
