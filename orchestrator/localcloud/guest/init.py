"""pid 1 of a bubblewrap box: metadata address, ways out, user data, the power-off timer.

When it exits, the kernel kills every process of the box, however it was started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

from orchestrator.localcloud.guest import loopback
from orchestrator.localcloud.guest.processes import Processes, log
from orchestrator.localcloud.guest.streams import joined_to

RUN = Path("/run/gpurun")
HOST = RUN / "host"
INSTANCE = Path("/var/lib/cloud/instance")
OUTPUT = Path("/var/log/cloud-init-output.log")
GRACE_S = 2.0


class Init:
    """The box's one power-off timer, and all that has to run before it fires."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        loopback.set_up()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._power_off, False)
        await self._open_ways()
        processes, env = Processes(), self._spec["env"]
        sshd = RUN / "sshd.json"
        sshd.write_text(json.dumps(self._spec["sshd"]))
        paths = os.pathsep.join([os.environ["PYTHONPATH"], str(RUN / "site")])
        processes.start_sshd(sshd, {**env, "PYTHONPATH": paths})
        processes.start_user_data(INSTANCE, OUTPUT, env, "/")
        await asyncio.Event().wait()

    async def _open_ways(self) -> None:
        unix, tcp = asyncio.open_unix_connection, asyncio.open_connection
        imds = joined_to(lambda: unix(str(HOST / "imds.sock")))
        cloud = joined_to(lambda: unix(str(HOST / "cloud.sock")))
        ssh = joined_to(lambda: tcp("127.0.0.1", 22))
        await asyncio.start_server(imds, loopback.METADATA_ADDRESS, 80)
        await asyncio.start_server(cloud, "127.0.0.1", 5000)
        await asyncio.start_unix_server(ssh, str(HOST / "ssh.sock"))
        await asyncio.start_unix_server(self._control, str(RUN / "control.sock"))

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One JSON line from one of the power-off commands (see `shim`)."""
        order = json.loads(await reader.readline())
        writer.write(b"ok\n")
        await writer.drain()
        writer.close()
        if order["op"] == "halt":
            log("halted: nothing ends here, and a halted instance bills on")
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if order["op"] == "cancel":
            log("power-off cancelled")
            return
        log(f"power-off in {order['delay_s']:g} s")
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(order["delay_s"], self._power_off, order["force"])

    def _power_off(self, force: bool) -> None:
        if force or self._ending is not None:
            leave()
        self._ending = asyncio.create_task(self._end_gently())

    async def _end_gently(self) -> None:
        """SIGTERM to all, a moment for those that answer it, then off."""
        log("powering off")
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGTERM)
        clock = asyncio.get_running_loop().time
        deadline = clock() + GRACE_S
        while _others() and clock() < deadline:
            await asyncio.sleep(0.02)
        leave()


def _others() -> bool:
    return any(p.name.isdigit() and p.name != "1" for p in Path("/proc").iterdir())


def leave() -> None:
    """Mark a power-off of the box's own, and end the box."""
    (HOST / "powered-off").touch()
    log("power off")
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(Init(json.loads((RUN / "box" / "box.json").read_text())).run())
