"""The box driver that needs bubblewrap: own namespaces, real paths, the real metadata address.

A box has no way to the host's power-off and no network but two sockets: the cloud's endpoint and
its SSH port. Its disk is gone when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
from pathlib import Path

from orchestrator.localcloud import disk
from orchestrator.localcloud.box import BoxFailed, BoxSpec, Outcome, box_environment
from orchestrator.localcloud.guest.streams import joined_to
from orchestrator.localcloud.imds import MetadataService

_NAMESPACES = [
    *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--uid", "0", "--gid", "0", "--cap-add", "ALL"),
]
_RUN_BYTES = 64 << 20
_WHEELS = "/mnt/wheels"


def usable() -> str:
    """Empty where boxes can be built on this machine, else why not: the only honest test."""
    argv = ["bwrap", *_NAMESPACES, *_system(), "--tmpfs", "/run", *_interpreter(), *_guest()]
    argv += [str(disk.python()), "-I", "-S", "-B", f"{disk.GUEST_IN_BOX}/loopback.py"]
    try:
        probe = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return "bwrap isn't installed"
    except (OSError, subprocess.TimeoutExpired) as wrong:
        return str(wrong)
    return "" if probe.returncode == 0 else probe.stderr.strip() or f"exit {probe.returncode}"


class BubblewrapBox:
    """One box under bubblewrap; see `orchestrator.localcloud.box.Box`."""

    def __init__(self, spec: BoxSpec) -> None:
        self._spec = spec
        self._killed = False
        self._servers: list[asyncio.Server] = []
        self._host_fd = self._pid1 = -1
        self.ssh_port = 0

    async def start(self) -> None:
        try:
            await self._boot()
        except (OSError, BoxFailed) as wrong:
            self._end_bwrap()
            self._close_ways()
            raise BoxFailed(str(wrong)) from wrong

    async def _boot(self) -> None:
        root = await asyncio.to_thread(disk.build, self._spec, self._guest_file())
        await self._open_ways()
        told, tell = os.pipe()
        argv = self._argv(root, tell)
        with self._spec.console.open("ab") as console:
            self._process = await asyncio.create_subprocess_exec(
                *argv, stdin=subprocess.DEVNULL, stdout=console, stderr=console, pass_fds=[tell]
            )
        os.close(tell)
        self._pid1 = await _pid_of_first_process(told)
        if self._killed:
            self.kill()

    def _guest_file(self) -> dict[str, object]:
        extra = {"AWS_ENDPOINT_URL": "http://127.0.0.1:5000", "PATH": disk.PATH}
        if self._spec.wheels is not None:
            extra["GPURUN_WHEELS"] = _WHEELS
        env = box_environment(self._spec, HOME="/root", USER="root", LOGNAME="root", **extra)
        login = env | {"HOME": "/home/ubuntu", "USER": "ubuntu", "LOGNAME": "ubuntu"}
        sshd = {
            "host_key": "/etc/ssh/ssh_host_ed25519_key",
            "authorized_keys": "/home/ubuntu/.ssh/authorized_keys",
            "boot_finished": "/var/lib/cloud/instance/boot-finished",
            "port": 22,
            "port_file": "/run/gpurun/ssh-port",
            "env": login,
            "home": "/home/ubuntu",
        }
        return {"env": env, "sshd": sshd}

    async def _open_ways(self) -> None:
        # Socket paths are short by way of /proc: a home folder may lie deeper than 108 bytes.
        self._host_fd = os.open(self._spec.folder / "host", os.O_RDONLY | os.O_DIRECTORY)
        sockets = f"/proc/self/fd/{self._host_fd}"
        imds = MetadataService(self._spec.metadata, self._spec.now).handle
        cloud = joined_to(lambda: asyncio.open_connection("127.0.0.1", self._spec.cloud_port))
        ssh = joined_to(lambda: asyncio.open_unix_connection(f"{sockets}/ssh.sock"))
        self._servers = [
            await asyncio.start_unix_server(imds, f"{sockets}/imds.sock"),
            await asyncio.start_unix_server(cloud, f"{sockets}/cloud.sock"),
            await asyncio.start_server(ssh, "127.0.0.1", 0),
        ]
        self.ssh_port = int(self._servers[2].sockets[0].getsockname()[1])

    def _argv(self, root: Path, info_fd: int) -> list[str]:
        argv = ["bwrap", *_NAMESPACES, "--hostname", self._spec.instance_id, "--as-pid-1"]
        argv += ["--die-with-parent", "--new-session", "--info-fd", str(info_fd), *_system()]
        argv += ["--size", str(_RUN_BYTES), "--tmpfs", "/run", *_guest()]
        for name in disk.VOLUME:
            argv += ["--bind", str(root / name), f"/{name}"]
        prefix = disk.python().parent.parent
        if Path("/usr/local") not in (prefix, *prefix.parents):
            argv += ["--bind", str(root / "usr-local"), "/usr/local"]
        argv += _interpreter()
        folder = self._spec.folder
        # Started by root, a box's uid 0 is the host's: these two would still obey it.
        argv += ["--ro-bind", "/proc/sys", "/proc/sys"]
        if Path("/proc/sysrq-trigger").exists():
            argv += ["--ro-bind", str(folder / "box" / "nothing"), "/proc/sysrq-trigger"]
        argv += ["--bind", str(folder / "host"), "/run/gpurun/host"]
        for name in ("box", "bin"):
            argv += ["--ro-bind", str(folder / name), f"/run/gpurun/{name}"]
        # /usr/sbin/poweroff and its kin are links to systemctl where a host has them.
        if Path("/usr/bin/systemctl").exists():
            argv += ["--ro-bind", str(folder / "bin" / "systemctl"), "/usr/bin/systemctl"]
        if self._spec.wheels is not None:
            argv += ["--ro-bind", str(self._spec.wheels), _WHEELS]
        argv += ["--clearenv", "--setenv", "PATH", disk.PATH]
        argv += ["--setenv", "PYTHONPATH", "/run/gpurun/lib", "--chdir", "/", "--"]
        return [*argv, str(disk.python()), "-B", "-m", "orchestrator.localcloud.guest.init"]

    async def ended(self) -> Outcome:
        await self._process.wait()
        await _gone(self._pid1)
        self._pid1 = -1
        self._close_ways()
        if (self._spec.folder / "host" / "powered-off").exists():
            return Outcome.POWERED_OFF
        return Outcome.KILLED if self._killed else Outcome.FAILED

    def _close_ways(self) -> None:
        for server in self._servers:
            server.close()
        if self._host_fd >= 0:
            os.close(self._host_fd)
            self._host_fd = -1

    def kill(self) -> None:
        """Ends the namespace by its first process, once that is known.

        Were bwrap killed while it sets that process up, nobody would ever tell it to go on or end.
        """
        self._killed = True
        if self._pid1 >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pid1, signal.SIGKILL)
            self._end_bwrap()

    def _end_bwrap(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.returncode is None:
            process.kill()


def _system() -> list[str]:
    argv = ["--ro-bind", "/usr", "/usr"]
    for path in (Path("/bin"), Path("/sbin"), Path("/lib"), Path("/lib32"), Path("/lib64")):
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            argv += ["--ro-bind", str(path), str(path)]
    return [*argv, "--proc", "/proc", "--dev", "/dev"]


def _interpreter() -> list[str]:
    prefix = disk.python().parent.parent
    inside = Path("/usr") in (prefix, *prefix.parents)
    return [] if inside else ["--ro-bind", str(prefix), str(prefix)]


def _guest() -> list[str]:
    argv = ["--ro-bind", str(disk.GUEST), disk.GUEST_IN_BOX]
    found = importlib.util.find_spec("asyncssh")
    if found is not None and found.origin is not None:
        argv += ["--ro-bind", str(Path(found.origin).parent.parent), "/run/gpurun/site"]
    return argv


async def _pid_of_first_process(fd: int) -> int:
    """A pidfd of the box's pid 1, from what bwrap reports; raises BoxFailed."""
    reader = asyncio.StreamReader()
    with os.fdopen(fd, "rb", buffering=0) as source:
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        text = await reader.read()
    try:
        return os.pidfd_open(int(json.loads(text)["child-pid"]))
    except (ValueError, KeyError, ProcessLookupError) as wrong:
        raise BoxFailed(f"bwrap ended before the box ran: {text.decode()!r}") from wrong


async def _gone(pidfd: int) -> None:
    """Wait until a process has ended; the kernel says so on its pidfd."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
