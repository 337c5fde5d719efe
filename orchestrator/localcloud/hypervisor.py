"""Instances with boxes behind them: a launch boots one, its end ends the other, either way round.

moto calls in from server threads (`launched`, `ending`, under the API lock); boxes live on the
event loop, which changes moto's records only through `_record`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from threading import RLock
from typing import Any

from moto.ec2.exceptions import EC2ClientError

from orchestrator.errors import CatalogError
from orchestrator.localcloud.box import Box, BoxFailed, BoxSpec, Outcome, delete_folder
from orchestrator.localcloud.metadata import (
    access_key_of,
    metadata_of,
    public_key_of,
    role_of,
    user_data_of,
)
from orchestrator.localcloud.meter import Kind, Launch, Meter
from orchestrator.localcloud.rules.settings import StrictRules, set_state

_log = logging.getLogger(__name__)
SSH_PORT_TAG = "gpurun:ssh-port"
_WHILE_RUNNING = (Kind.COMPUTE, Kind.IPV4)
_BY_ITSELF = (
    "Client.InstanceInitiatedShutdown",
    "Client.InstanceInitiatedShutdown: Instance initiated shutdown",
)
_BROKEN = ("Server.InternalError", "Server.InternalError: Internal error on launch")


class Hypervisor:
    """The `InstanceLife` of a cloud that boots boxes."""

    def __init__(
        self,
        *,
        make_box: Callable[[BoxSpec], Box],
        check_user_data: Callable[[bytes], str],
        rules: StrictRules,
        meter: Meter,
        lock: RLock,
        folder: Path,
        wheels: Path | None,
    ) -> None:
        self._make_box, self._check_user_data = make_box, check_user_data
        self._rules, self._meter, self._lock = rules, meter, lock
        self._folder, self._wheels = folder, wheels
        self._loop = asyncio.get_running_loop()
        self._boxes: dict[str, Box] = {}
        self._roles: dict[str, Any] = {}
        self._lives: set[asyncio.Task[None]] = set()
        self._stopped: set[str] = set()
        self._closing = False
        self.cloud_port = 0

    def check_launch(self, backend: Any, instance_type: str, user_data: bytes) -> None:
        try:
            self._meter.price_of(instance_type, backend.region_name)
        except CatalogError as unknown:
            raise EC2ClientError(
                "Unsupported", f"The local cloud can't bill it: {unknown.message}"
            ) from unknown
        if wrong := self._check_user_data(user_data):
            raise EC2ClientError("InvalidParameterValue", wrong)

    def launched(self, instance: Any) -> None:
        set_state(instance, "pending")
        tags = instance.ec2_backend.tags.get(instance.id, {})
        volumes = [instance.ec2_backend.volumes[v.volume_id] for _, v in _devices(instance)]
        self._meter.launched(
            Launch(
                instance_id=instance.id,
                instance_type=instance.instance_type,
                region=instance.region_name,
                run=tags.get("gpurun:run", ""),
                box=tags.get("gpurun:box", ""),
                disk_gb=sum(int(volume.size) for volume in volumes),
                has_public_ip=bool(instance.public_ip),
            )
        )
        self._roles[access_key_of(instance.id)] = instance
        self._loop.call_soon_threadsafe(self._begin, instance)

    def ending(self, instance: Any) -> None:
        set_state(instance, "shutting-down")
        self._meter.ended(instance.id, Kind)
        self._loop.call_soon_threadsafe(self._kill, instance)

    def settle(self, instance: Any) -> None:
        """Nothing changes by the clock alone: a box does."""

    def role_of_key(self, access_key: str) -> Any:
        """The role whose credentials a box signs with, or None."""
        instance = self._roles.get(access_key)
        return role_of(instance) if instance is not None else None

    def console_of(self, instance_id: str) -> bytes:
        """What the box has written to its console; it outlives the box."""
        path = self._console(instance_id)
        return path.read_bytes() if path.exists() else b""

    async def close(self) -> None:
        """Kill every box, and wait until the last one is gone."""
        self._closing = True
        for box in self._boxes.values():
            box.kill()
        await asyncio.gather(*self._lives)

    def _console(self, instance_id: str) -> Path:
        return self._folder / f"{instance_id}.console.log"

    def _begin(self, instance: Any) -> None:
        if self._closing:
            return
        spec = self._spec(instance)
        box = self._boxes[instance.id] = self._make_box(spec)
        self._spawn(self._live(instance, spec, box))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._lives.add(task)
        task.add_done_callback(self._lives.discard)

    def _kill(self, instance: Any) -> None:
        if box := self._boxes.get(instance.id):
            box.kill()
        elif instance.id in self._stopped:
            self._stopped.remove(instance.id)
            self._spawn(self._buried(instance))

    async def _live(self, instance: Any, spec: BoxSpec, box: Box) -> None:
        try:
            spec.folder.mkdir(parents=True)
            await box.start()
            await self._record(self._mark_running, instance, box)
            outcome = await box.ended()
        except (BoxFailed, OSError) as wrong:
            _log.error("%s didn't start: %s", instance.id, wrong)
            outcome = Outcome.FAILED
        del self._boxes[instance.id]
        _log.info("%s %s", instance.id, outcome)
        await self._record(self._mark_ended, instance, outcome)
        if instance._state.name == "stopped":
            self._stopped.add(instance.id)
        else:
            await self._buried(instance)

    def _spec(self, instance: Any) -> BoxSpec:
        return BoxSpec(
            instance_id=instance.id,
            region=instance.region_name,
            user_data=user_data_of(instance),
            authorized_key=public_key_of(instance),
            metadata=lambda: metadata_of(instance, self._rules.now()),
            now=self._rules.now,
            cloud_port=self.cloud_port,
            folder=self._folder / instance.id,
            console=self._console(instance.id),
            wheels=self._wheels,
        )

    async def _buried(self, instance: Any) -> None:
        """Delete the disk; only then is the instance `terminated`."""
        await delete_folder(self._folder / instance.id)
        await self._record(self._mark_terminated, instance)

    async def _record(self, change: Callable[..., None], *arguments: Any) -> None:
        def locked() -> None:
            with self._lock:
                change(*arguments)

        await asyncio.to_thread(locked)

    def _mark_running(self, instance: Any, box: Box) -> None:
        if instance._state.name != "pending":
            return
        if instance.public_ip:
            instance.nics[0].public_ip = "127.0.0.1"
        instance.add_tag(SSH_PORT_TAG, str(box.ssh_port))
        set_state(instance, "running")

    def _mark_ended(self, instance: Any, outcome: Outcome) -> None:
        if self._closing or instance._state.name not in ("pending", "running"):
            return  # TerminateInstances got there first
        code, message = _BROKEN if outcome is Outcome.FAILED else _BY_ITSELF
        stops = instance.instance_initiated_shutdown_behavior == "stop"
        if stops and outcome is Outcome.POWERED_OFF:
            instance.stop()
            self._meter.ended(instance.id, _WHILE_RUNNING)
        else:
            instance.terminate()
        instance.state_reason.code, instance.state_reason.message = code, message

    def _mark_terminated(self, instance: Any) -> None:
        set_state(instance, "terminated")
        instance.strict_terminated_at = self._rules.now()


def _devices(instance: Any) -> list[tuple[str, Any]]:
    return list(instance.block_device_mapping.items())
