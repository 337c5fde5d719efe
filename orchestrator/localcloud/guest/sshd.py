"""A box's SSH server: keys only, bash without profiles, SFTP.

OpenSSH and dropbear need more than one user id; asyncssh doesn't. No login shell is used: it
would reset PATH and pass by the box's own power-off commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
import termios
from pathlib import Path
from typing import Any

import asyncssh

OUTPUT_S = 2.0


class Keyring(asyncssh.SSHServer):
    """Accepts any user name whose key is in the box's authorized_keys."""

    authorized_keys: Path

    def begin_auth(self, _username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, _username: str, key: Any) -> bool:
        offered = key.export_public_key().decode().split()[:2]
        with contextlib.suppress(OSError):
            lines = self.authorized_keys.read_text().splitlines()
            return offered in [line.split()[:2] for line in lines]
        return False


async def serve(spec: dict[str, Any]) -> None:
    """Wait for the host key, serve on the port asked for, and write the port that it became."""
    key = await _host_key(Path(spec["host_key"]), Path(spec["boot_finished"]))
    Keyring.authorized_keys = Path(spec["authorized_keys"])
    server = await asyncssh.listen(
        "127.0.0.1",
        spec["port"],
        server_host_keys=[key],
        server_factory=Keyring,
        process_factory=lambda process: _run(process, spec),
        sftp_factory=True,
        sftp_version=3,
        encoding=None,
        keepalive_interval=15,
    )
    port_file = Path(spec["port_file"])
    port_file.with_suffix(".new").write_text(str(server.get_port()))
    port_file.with_suffix(".new").rename(port_file)
    await server.wait_closed()


async def _host_key(path: Path, boot_finished: Path) -> Any:
    """The key that user data writes; one of our own where it has ended without writing any."""
    while True:
        with contextlib.suppress(OSError, asyncssh.KeyImportError):
            return asyncssh.read_private_key(str(path))
        if boot_finished.exists() and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = asyncssh.generate_private_key("ssh-ed25519")
            path.write_bytes(made.export_private_key("openssh"))
            path.chmod(0o600)
        await asyncio.sleep(0.05)


async def _run(process: Any, spec: dict[str, Any]) -> None:
    argv = ["bash", "--noprofile", "--norc", *(["-c", _text(process)] if process.command else [])]
    options: dict[str, Any] = {"env": spec["env"], "cwd": spec["home"], "start_new_session": True}
    if process.term_type:
        child = await _on_terminal(process, argv, options)
    else:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=pipe, **options
        )
        await process.redirect(child.stdin, child.stdout, child.stderr)
    try:
        code = await child.wait()
        await _said_all(process)
        # The client may have left first; raising here would drop its whole connection.
        with contextlib.suppress(OSError, asyncssh.Error):
            process.exit(code if code >= 0 else 128 - code)
    finally:
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGHUP)


async def _said_all(process: Any) -> None:
    """What the child wrote is on its way; a grandchild that holds its output isn't waited for."""
    with contextlib.suppress(OSError, asyncssh.Error, TimeoutError):
        async with asyncio.timeout(OUTPUT_S):
            await process.stdout.drain()
            await process.stderr.drain()


def _text(process: Any) -> str:
    command = process.command
    return command.decode() if isinstance(command, bytes) else str(command)


async def _on_terminal(
    process: Any, argv: list[str], options: dict[str, Any]
) -> asyncio.subprocess.Process:
    ours, theirs = os.openpty()
    options["env"] = {**options["env"], "TERM": str(process.term_type)}

    def own_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    child = await asyncio.create_subprocess_exec(
        *argv, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=own_terminal, **options
    )
    os.close(theirs)
    await process.redirect(stdin=os.dup(ours), stdout=ours)
    return child


if __name__ == "__main__":
    asyncio.run(serve(json.loads(Path(sys.argv[1]).read_text())))
