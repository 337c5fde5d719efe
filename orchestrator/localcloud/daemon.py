"""The local cloud's process: one server, one event loop of boxes, one state file.

Everything of the cloud ends with it. Boxes are children of the main thread's loop, so that they
die with this process even when it is killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import boto3
from botocore.config import Config
from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.responses.general import General

from orchestrator.catalog import load_catalog
from orchestrator.localcloud import drivers, web
from orchestrator.localcloud.firing import Firing, clients_of
from orchestrator.localcloud.hypervisor import Hypervisor
from orchestrator.localcloud.meter import Meter
from orchestrator.localcloud.rules.settings import StrictRules, system_now
from orchestrator.localcloud.spot import SpotNotices
from orchestrator.localcloud.state import (
    CloudState,
    folder_of,
    remove_state,
    write_state,
)
from orchestrator.localcloud.strict import enforce

_log = logging.getLogger(__name__)
_TICK_S = 0.25
_CONSOLE_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class DaemonOptions:
    """How one cloud runs."""

    home: Path
    port: int
    wheels: Path | None
    region: str


def run(options: DaemonOptions, driver: drivers.Driver) -> None:
    """Serve until SIGTERM or SIGINT; the caller holds the home's lock."""
    try:
        asyncio.run(_Cloud(options, driver).live())
    finally:
        remove_state(options.home)


class _Cloud:
    def __init__(self, options: DaemonOptions, driver: drivers.Driver) -> None:
        self._options, self._driver = options, driver
        self._rules = StrictRules()
        self._lock = threading.RLock()
        self._spot = SpotNotices(self._lock, self._rules.now)
        self._started_at = system_now().isoformat()

    async def live(self) -> None:
        over = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, over.set)
        hypervisor, app = self._build()
        with _serving(web.serve(app, self._options.port)) as port:
            hypervisor.cloud_port = port
            url = f"http://127.0.0.1:{port}"
            await asyncio.to_thread(_warm_up, url, self._options.region)
            write_state(self._options.home, self._state(url))
            _log.info("ready at %s, boxes by %s", url, self._driver.name)
            firing = asyncio.create_task(self._fire_forever(url))
            await over.wait()
            firing.cancel()
            await hypervisor.close()
        _log.info("ended")

    def _build(self) -> tuple[Hypervisor, web.CloudApp]:
        boxes = folder_of(self._options.home) / "boxes"
        _forget_old_boxes(boxes)
        meter = Meter(load_catalog(), self._rules.now, self._options.region)
        hypervisor = Hypervisor(
            make_box=self._driver.make_box,
            check_user_data=self._driver.check_user_data,
            rules=self._rules,
            meter=meter,
            lock=self._lock,
            folder=boxes,
            wheels=self._options.wheels,
        )
        self._rules.life = hypervisor
        _install(self._rules, hypervisor)
        app = web.CloudApp(
            lock=self._lock,
            meter=meter,
            role_of_key=hypervisor.role_of_key,
            health=lambda: {
                "pid": os.getpid(),
                "driver": self._driver.name,
                "running": meter.running(),
            },
            turn=self._turn,
            spot=self._spot,
        )
        return hypervisor, app

    def _state(self, url: str) -> CloudState:
        return CloudState(
            pid=os.getpid(),
            url=url,
            driver=self._driver.name,
            started_at=self._started_at,
            region=self._options.region,
        )

    def _turn(self, settings: dict[str, Any]) -> None:
        """POST /_gpurun/rules: quota and capacity, for rehearsing refusals."""
        with self._lock:
            self._rules.vcpu_limits.update(settings.get("vcpu_limits", {}))
            for place, count in settings.get("capacity", {}).items():
                instance_type, _, zone = place.partition("/")
                self._rules.capacity[instance_type, zone] = int(count)

    async def _fire_forever(self, url: str) -> None:
        firing = Firing(clients_of(url), self._lock, self._rules.now)
        while True:
            try:
                await asyncio.to_thread(firing.fire_due)
                await asyncio.to_thread(self._spot.take_due)
            except Exception:  # a schedule that can't fire must not stop the others
                _log.exception("firing schedules")
            await asyncio.sleep(_TICK_S)


@contextmanager
def _serving(server: Any) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def _install(rules: StrictRules, hypervisor: Hypervisor) -> None:
    patches = enforce(rules)
    for name in ("start_instances", "stop_instances", "reboot_instances"):
        patches.replace(EC2Backend, name, lambda _stock: _unsupported)
    patches.replace(General, "get_console_output", lambda _stock: _console(hypervisor.console_of))


def _unsupported(_backend: Any, _instance_ids: list[str]) -> None:
    raise EC2ClientError("UnsupportedOperation", "A local box can only be terminated.")


def _console(read: Callable[[str], bytes]) -> Any:
    def get_console_output(self: Any) -> Any:
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        text = read(instance.id)[-_CONSOLE_BYTES:].decode(errors="replace")
        output = Base64EncodedString.from_raw_string(text)
        return ActionResult(
            {"InstanceId": instance.id, "Timestamp": system_now(), "Output": output}
        )

    return get_console_output


def _forget_old_boxes(folder: Path) -> None:
    """A killed cloud leaves folders behind; its boxes died with it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _warm_up(url: str, region: str) -> None:
    """moto loads its tables at the first call: before anyone waits for an answer."""
    keys = {"aws_access_key_id": "warm", "aws_secret_access_key": "up"}
    make, config = cast("Any", boto3.client), Config(proxies={})
    for service, call in (("ec2", "describe_instances"), ("s3", "list_buckets")):
        client = make(service, region_name=region, endpoint_url=url, config=config, **keys)
        getattr(client, call)()


def set_up_logging() -> None:
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("orchestrator").setLevel(logging.INFO)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
