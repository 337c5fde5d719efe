"""EC2: what becomes of instances and volumes, and the list of all tags."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.faults.cloud import life
from tests.faults.cloud.ec2_launch import Launching
from tests.faults.cloud.filters import is_like, matching
from tests.faults.cloud.instance import BY_A_CALL, Instance
from tests.faults.cloud.refusal import Refused, not_found
from tests.faults.cloud.service import tag_map, tags_of
from tests.faults.cloud.things import Address, Json, Snapshot, Thing, Volume


class Ec2(Launching):
    def describe_instances(
        self, *, Filters: Iterable[Any] = (), InstanceIds: Sequence[str] = ()
    ) -> Json:
        if InstanceIds:
            found = [self._instance(name) for name in InstanceIds]
        else:
            shown = self._account.visible(self._region.instances)
            found = [i for i in shown if not life.is_forgotten(self._account, i)]
        return {
            "Reservations": [
                {"OwnerId": self._account.id, "Instances": [instance.describe()]}
                for instance in matching(found, Filters)
            ]
        }

    def terminate_instances(self, *, InstanceIds: Sequence[str]) -> Json:
        """All of them or none."""
        named = [self._instance(name) for name in InstanceIds]
        for instance in named:
            if instance.protected and instance.alive:
                raise Refused(
                    "OperationNotPermitted",
                    f"The instance '{instance.id}' may not be terminated. Modify its "
                    "'disableApiTermination' instance attribute and try again.",
                )
        return {"TerminatingInstances": [self._terminate(instance) for instance in named]}

    def modify_instance_attribute(
        self,
        *,
        InstanceId: str,
        DisableApiTermination: Json | None = None,
        InstanceInitiatedShutdownBehavior: Json | None = None,
    ) -> Json:
        instance = self._instance(InstanceId)
        if not instance.alive:
            raise Refused(
                "IncorrectInstanceState", f"The instance '{InstanceId}' is {instance.state}"
            )
        if DisableApiTermination:
            instance.protected = DisableApiTermination["Value"]
        if InstanceInitiatedShutdownBehavior:
            instance.shutdown_behavior = InstanceInitiatedShutdownBehavior["Value"]
        return {}

    def describe_instance_attribute(self, *, InstanceId: str, Attribute: str) -> Json:
        instance = self._instance(InstanceId)
        coded = base64.b64encode(instance.user_data.encode()).decode()
        values: dict[str, Any] = {
            "userData": coded,
            "disableApiTermination": instance.protected,
            "instanceInitiatedShutdownBehavior": instance.shutdown_behavior,
        }
        name = Attribute[0].upper() + Attribute[1:]
        return {"InstanceId": instance.id, name: {"Value": values[Attribute]}}

    def get_console_output(self, *, InstanceId: str, Latest: bool = False) -> Json:
        return {"InstanceId": self._instance(InstanceId).id, "Output": ""}

    def create_volume(
        self, *, AvailabilityZone: str, Size: int, TagSpecifications: Iterable[Any] = ()
    ) -> Json:
        volume = Volume(
            id=self._account.new_id("vol"),
            visible_at=self._account.visible_at(),
            tags=tags_of(TagSpecifications, "volume"),
            size_gb=Size,
            zone=AvailabilityZone,
        )
        self._region.volumes[volume.id] = volume
        return volume.describe()

    def describe_volumes(
        self, *, Filters: Iterable[Any] = (), VolumeIds: Sequence[str] = ()
    ) -> Json:
        found = self._named("volume", self._region.volumes, VolumeIds)
        return {"Volumes": [volume.describe() for volume in matching(found, Filters)]}

    def delete_volume(self, *, VolumeId: str) -> Json:
        volume = self._account.find(self._region.volumes, "volume", VolumeId)
        if volume.instance_id:
            message = f"Volume {VolumeId} is currently attached to {volume.instance_id}"
            raise Refused("VolumeInUse", message)
        del self._region.volumes[VolumeId]
        return {}

    def create_snapshot(self, *, VolumeId: str, TagSpecifications: Iterable[Any] = ()) -> Json:
        volume = self._account.find(self._region.volumes, "volume", VolumeId)
        snapshot = Snapshot(
            id=self._account.new_id("snap"),
            visible_at=self._account.visible_at(),
            tags=tags_of(TagSpecifications, "snapshot"),
            volume_id=volume.id,
        )
        self._region.snapshots[snapshot.id] = snapshot
        return snapshot.describe()

    def delete_snapshot(self, *, SnapshotId: str) -> Json:
        self._account.find(self._region.snapshots, "snapshot", SnapshotId)
        del self._region.snapshots[SnapshotId]
        return {}

    def allocate_address(
        self, *, Domain: str = "vpc", TagSpecifications: Iterable[Any] = ()
    ) -> Json:
        address = Address(
            id=self._account.new_id("eipalloc"),
            visible_at=self._account.visible_at(),
            tags=tags_of(TagSpecifications, "elastic-ip"),
            public_ip=f"198.18.255.{len(self._region.addresses) + 1}",
        )
        self._region.addresses[address.id] = address
        return address.describe()

    def describe_addresses(self, *, Filters: Iterable[Any] = ()) -> Json:
        found = matching(self._account.visible(self._region.addresses), Filters)
        return {"Addresses": [address.describe() for address in found]}

    def release_address(self, *, AllocationId: str) -> Json:
        self._account.find(self._region.addresses, "elastic-ip", AllocationId)
        del self._region.addresses[AllocationId]
        return {}

    def create_tags(self, *, Resources: Sequence[str], Tags: Iterable[Any]) -> Json:
        named = [self._anything(name) for name in Resources]
        for thing in named:
            thing.tags |= tag_map(Tags)
        return {}

    def delete_tags(self, *, Resources: Sequence[str], Tags: Iterable[Any]) -> Json:
        for thing in [self._anything(name) for name in Resources]:
            for tag in Tags:
                if tag.get("Value", thing.tags.get(tag["Key"])) == thing.tags.get(tag["Key"]):
                    thing.tags.pop(tag["Key"], None)
        return {}

    def describe_tags(self, *, Filters: Iterable[Any] = ()) -> Json:
        wanted = [(f["Name"], f["Values"]) for f in Filters]
        return {"Tags": [row for row in self._tags() if _passes(row, wanted)]}

    def _tags(self) -> Iterator[Json]:
        now = self._account.timeline.time()
        for thing in self._region.ec2():
            if thing.tags and thing.visible_at <= now:
                for key, value in thing.tags.items():
                    yield {
                        "Key": key,
                        "Value": value,
                        "ResourceId": thing.id,
                        "ResourceType": thing.kind,
                    }

    def _instance(self, name: str) -> Instance:
        instance = self._account.find(self._region.instances, "instance", name)
        if life.is_forgotten(self._account, instance):
            raise not_found("instance", name)
        return instance

    def _terminate(self, instance: Instance) -> Json:
        before = instance.state_json()
        life.end(self._account, instance, BY_A_CALL)
        return {
            "InstanceId": instance.id,
            "PreviousState": before,
            "CurrentState": instance.state_json(),
        }

    def _anything(self, name: str) -> Thing:
        now = self._account.timeline.time()
        for thing in self._region.ec2():
            if thing.id == name and thing.visible_at <= now:
                return thing
        raise Refused("InvalidID", f"The ID '{name}' is not valid")


_TAG_FIELDS = {
    "key": "Key",
    "value": "Value",
    "resource-id": "ResourceId",
    "resource-type": "ResourceType",
}


def _passes(row: Json, wanted: list[tuple[str, Any]]) -> bool:
    for name, values in wanted:
        if name not in _TAG_FIELDS:
            raise Refused("InvalidParameterValue", f"The filter '{name}' is invalid")
        if not is_like(row[_TAG_FIELDS[name]], values):
            return False
    return True
