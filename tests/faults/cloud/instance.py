"""An instance of the model: the record that the search reads, and how EC2 describes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from orchestrator.localcloud.rules.settings import STATE_CODES
from tests.faults.cloud.things import Json, Thing, tag_list

BY_ITSELF = "Client.InstanceInitiatedShutdown"
BY_A_CALL = "Client.UserInitiatedShutdown"
BY_SPOT = "Server.SpotInstanceTermination"
BROKEN = "Server.InternalError"
_TEXTS = {
    BY_ITSELF: "Instance initiated shutdown",
    BY_A_CALL: "User initiated shutdown",
    BY_SPOT: "Spot instance termination",
    BROKEN: "Internal error",
}


@dataclass(kw_only=True)
class Instance(Thing):
    """`ended_at` is when it entered `shutting-down`: compute is billed until then."""

    kind = "instance"
    type: str
    zone: str
    region: str
    user_data: str
    launched_at: datetime
    ended_at: datetime | None = None
    terminated_at: datetime | None = None
    state: str = "pending"
    reason: str = ""
    """EC2's code for why it stopped or ended."""
    transition: str = ""
    shutdown_behavior: str = "stop"
    protected: bool = False
    spot: bool = False
    spot_request: str = ""
    profile: str = ""
    profile_arn: str = ""
    image: str = ""
    key: str = ""
    token: str = ""
    subnet_id: str = ""
    vpc_id: str = ""
    groups: list[str] = field(default_factory=list)
    private_ip: str = ""
    public_ip: str | None = None
    interface_id: str = ""
    devices: dict[str, str] = field(default_factory=dict)
    """Volume by device."""
    root_device: str = "/dev/sda1"
    metadata: Json = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        return self.state not in ("shutting-down", "terminated")

    def state_json(self) -> Json:
        return {"Code": STATE_CODES[self.state], "Name": self.state}

    def describe(self) -> Json:
        seen: Json = {
            "InstanceId": self.id,
            "ImageId": self.image,
            "InstanceType": self.type,
            "LaunchTime": self.launched_at,
            "State": self.state_json(),
            "StateTransitionReason": self.transition,
            "Placement": {"AvailabilityZone": self.zone, "Tenancy": "default"},
            "RootDeviceName": self.root_device,
            "ClientToken": self.token,
            "MetadataOptions": self.metadata,
            "SecurityGroups": [{"GroupId": group} for group in self.groups],
            "BlockDeviceMappings": self._devices(),
            "Tags": tag_list(self.tags),
        }
        return seen | self._while_it_lives() | self._if_any()

    def _devices(self) -> list[Json]:
        return [
            {"DeviceName": device, "Ebs": {"VolumeId": volume, "Status": "attached"}}
            for device, volume in self.devices.items()
        ]

    def _while_it_lives(self) -> Json:
        """A terminated instance has lost its place in the network."""
        if self.state == "terminated":
            return {"NetworkInterfaces": []}
        nic = {
            "NetworkInterfaceId": self.interface_id,
            "SubnetId": self.subnet_id,
            "VpcId": self.vpc_id,
            "Status": "in-use",
        }
        return {
            "SubnetId": self.subnet_id,
            "VpcId": self.vpc_id,
            "PrivateIpAddress": self.private_ip,
            "NetworkInterfaces": [nic],
        }

    def _if_any(self) -> Json:
        seen: Json = {}
        if self.public_ip:
            seen["PublicIpAddress"] = self.public_ip
        if self.key:
            seen["KeyName"] = self.key
        if self.profile_arn:
            seen["IamInstanceProfile"] = {"Arn": self.profile_arn, "Id": "AIPAMODEL"}
        if self.spot:
            seen |= {"InstanceLifecycle": "spot", "SpotInstanceRequestId": self.spot_request}
        if self.reason:
            message = f"{self.reason}: {_TEXTS.get(self.reason, '')}"
            seen["StateReason"] = {"Code": self.reason, "Message": message}
        return seen

    def values(self, name: str) -> list[str] | None:
        return {
            "instance-id": [self.id],
            "instance-state-name": [self.state],
            "instance-state-code": [str(STATE_CODES[self.state])],
            "instance-type": [self.type],
            "instance-lifecycle": ["spot"] if self.spot else [],
            "availability-zone": [self.zone],
            "client-token": [self.token],
            "key-name": [self.key],
            "vpc-id": [self.vpc_id],
            "subnet-id": [self.subnet_id],
            "instance.group-id": self.groups,
        }.get(name)
