"""The fallback box driver: plain processes of this machine, with a folder for a disk.

No namespaces: no real paths, no network of its own, its user's rights. `hostwords` keeps scripts
away that name a host command for powering off; docs/localcloud.md lists what else is missing.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import subprocess
import sys
from pathlib import Path

from orchestrator.localcloud.box import BoxFailed, BoxSpec, Outcome, box_environment
from orchestrator.localcloud.guest.families import end_family
from orchestrator.localcloud.guest.streams import Pair, joined_to
from orchestrator.localcloud.imds import MetadataService

_PACKAGE_ROOT = Path(__file__).parents[2]


class PlainBox:
    """One box of plain processes; see `orchestrator.localcloud.box.Box`."""

    def __init__(self, spec: BoxSpec) -> None:
        self._spec = spec
        self._killed = False
        self._servers: list[asyncio.Server] = []
        self._root = spec.folder / "root"
        self._marker = f"GPURUN_BOX_MARKER={spec.instance_id}-{secrets.token_hex(8)}"
        self.ssh_port = 0

    async def start(self) -> None:
        try:
            await self._boot()
        except OSError as wrong:
            self._close_ways()
            raise BoxFailed(str(wrong)) from wrong

    async def _boot(self) -> None:
        imds_port = await self._open_ways()
        keeper = self._write_files(imds_port)
        argv = [sys.executable, "-B", "-m", "orchestrator.localcloud.guest.keeper", str(keeper)]
        with self._spec.console.open("ab") as console:
            self._process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"PYTHONPATH": str(_PACKAGE_ROOT), **_marker_variable(self._marker)},
                start_new_session=True,
            )
        if self._killed:
            self.kill()

    async def _open_ways(self) -> int:
        imds = MetadataService(self._spec.metadata, self._spec.now).handle
        self._servers = [
            await asyncio.start_server(imds, "127.0.0.1", 0),
            await asyncio.start_server(joined_to(self._ssh), "127.0.0.1", 0),
        ]
        imds_port, self.ssh_port = (s.sockets[0].getsockname()[1] for s in self._servers)
        return int(imds_port)

    async def _ssh(self) -> Pair:
        port = int((self._spec.folder / "ssh-port").read_text())
        return await asyncio.open_connection("127.0.0.1", port)

    def _write_files(self, imds_port: int) -> Path:
        spec, root = self._spec, self._root
        instance, home = root / "var/lib/cloud/instance", root / "root"
        for folder in (instance, home / ".ssh", root / "var/log", root / "opt/gpurun"):
            folder.mkdir(parents=True)
        (root / "etc/ssh").mkdir(parents=True)
        (home / ".ssh/authorized_keys").write_text(spec.authorized_key + "\n")
        (instance / "user-data.txt").write_bytes(spec.user_data)
        control = spec.folder / "control"
        os.mkfifo(control, 0o600)
        off = spec.folder / "off"
        off.write_text(f"#!/bin/sh\necho off > {shlex.quote(str(control))}\n")
        off.chmod(0o755)
        env = self._environment(imds_port, off)
        sshd = {
            "host_key": str(root / "etc/ssh/ssh_host_ed25519_key"),
            "authorized_keys": str(home / ".ssh/authorized_keys"),
            "boot_finished": str(instance / "boot-finished"),
            "port": 0,
            "port_file": str(spec.folder / "ssh-port"),
            "env": env,
            "home": str(home),
        }
        keeper = {
            "parent": os.getpid(),
            "control": str(control),
            "powered_off": str(spec.folder / "powered-off"),
            "sshd_file": str(spec.folder / "sshd.json"),
            "sshd_env": {**env, "PYTHONPATH": str(_PACKAGE_ROOT)},
            "instance": str(instance),
            "output": str(root / "var/log/cloud-init-output.log"),
            "env": env,
            "home": str(home),
            "marker": self._marker,
        }
        (spec.folder / "sshd.json").write_text(json.dumps(sshd))
        (spec.folder / "keeper.json").write_text(json.dumps(keeper))
        return spec.folder / "keeper.json"

    def _environment(self, imds_port: int, off: Path) -> dict[str, str]:
        bin_folder = Path(sys.base_prefix) / "bin"
        extra = {} if self._spec.wheels is None else {"GPURUN_WHEELS": str(self._spec.wheels)}
        home = str(self._root / "root")
        return box_environment(
            self._spec,
            HOME=home,
            USER="root",
            LOGNAME="root",
            PATH=f"{bin_folder}:/usr/local/bin:/usr/bin:/bin",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{self._spec.cloud_port}",
            AWS_EC2_METADATA_SERVICE_ENDPOINT=f"http://127.0.0.1:{imds_port}/",
            BOX_ROOT=str(self._root),
            GPURUN_ROOT=str(self._root / "opt/gpurun"),
            GPURUN_SSH_HOST_KEY=str(self._root / "etc/ssh/ssh_host_ed25519_key"),
            GPURUN_POWEROFF=str(off),
            **_marker_variable(self._marker),
            **extra,
        )

    async def ended(self) -> Outcome:
        await self._process.wait()
        await asyncio.to_thread(end_family, self._process.pid, self._marker)
        self._close_ways()
        if (self._spec.folder / "powered-off").exists():
            return Outcome.POWERED_OFF
        return Outcome.KILLED if self._killed else Outcome.FAILED

    def _close_ways(self) -> None:
        for server in self._servers:
            server.close()

    def kill(self) -> None:
        self._killed = True
        process = getattr(self, "_process", None)
        if process is not None and process.returncode is None:
            end_family(process.pid, self._marker)


def _marker_variable(marker: str) -> dict[str, str]:
    name, _, value = marker.partition("=")
    return {name: value}
