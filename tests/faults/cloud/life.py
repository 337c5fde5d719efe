"""How an instance comes, ends and stops, and what goes with it: interface, volumes, bill."""

from __future__ import annotations

from datetime import UTC

from orchestrator.localcloud.meter import Kind, Launch
from tests.faults.cloud.account import Account
from tests.faults.cloud.instance import Instance

_WHILE_RUNNING = (Kind.COMPUTE, Kind.IPV4)


def launched(account: Account, instance: Instance) -> None:
    """It is `pending` and bills from now on."""
    region = account.region(instance.region)
    region.instances[instance.id] = account.instances[instance.id] = instance
    account.meter.launched(
        Launch(
            instance_id=instance.id,
            instance_type=instance.type,
            region=instance.region,
            run=instance.tags.get("gpurun:run", ""),
            box=instance.tags.get("gpurun:box", ""),
            disk_gb=sum(region.volumes[volume].size_gb for volume in instance.devices.values()),
            has_public_ip=instance.public_ip is not None,
        )
    )
    account.timeline.after(account.rules.boot_s, lambda: _running(instance))
    if account.on_launch:
        account.on_launch(instance)


def end(account: Account, instance: Instance, reason: str) -> None:
    """Into `shutting-down`, unless it is there already: its machine is dead from then on."""
    if not instance.alive:
        return
    was_stopped = instance.state == "stopped"
    instance.state, instance.ended_at = "shutting-down", account.timeline.time()
    _say_why(account, instance, reason)
    account.meter.ended(instance.id, Kind)
    shutdown_s = 0.0 if was_stopped else account.rules.shutdown_s
    account.timeline.after(shutdown_s, lambda: _terminated(account, instance))
    if account.on_end:
        account.on_end(instance)


def stop(account: Account, instance: Instance, reason: str) -> None:
    """Into `stopping`: compute is billed no more, the volume is."""
    instance.state = "stopping"
    _say_why(account, instance, reason)
    account.meter.ended(instance.id, _WHILE_RUNNING)
    _unmap(account, instance)
    account.timeline.after(account.rules.shutdown_s, lambda: _stopped(instance))


def is_forgotten(account: Account, instance: Instance) -> bool:
    """EC2 shows a terminated instance for about an hour."""
    gone = instance.terminated_at
    return gone is not None and gone <= account.timeline.ago(account.rules.forget_s)


def _running(instance: Instance) -> None:
    if instance.state == "pending":
        instance.state = "running"


def _stopped(instance: Instance) -> None:
    if instance.state == "stopping":
        instance.state = "stopped"


def _terminated(account: Account, instance: Instance) -> None:
    instance.state, instance.terminated_at = "terminated", account.timeline.time()
    _unmap(account, instance)
    region = account.region(instance.region)
    for volume_id in instance.devices.values():
        volume = region.volumes.get(volume_id)
        if volume is not None:
            volume.instance_id = None
            if volume.ends_with_instance:
                del region.volumes[volume_id]
    instance.devices = {}
    account.timeline.after(account.rules.linger_s, lambda: _interface_gone(account, instance))


def _interface_gone(account: Account, instance: Instance) -> None:
    account.region(instance.region).interfaces.pop(instance.interface_id, None)


def _unmap(account: Account, instance: Instance) -> None:
    instance.public_ip = None
    interface = account.region(instance.region).interfaces.get(instance.interface_id)
    if interface is not None:
        interface.public_ip = None


def _say_why(account: Account, instance: Instance, reason: str) -> None:
    instance.reason = reason
    if reason.startswith("Server."):
        instance.transition = reason  # EC2 gives no time for an end of its own
        return
    at = account.timeline.time().astimezone(UTC)
    instance.transition = f"User initiated ({at:%Y-%m-%d %H:%M:%S} GMT)"
