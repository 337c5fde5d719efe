"""SSH to a box: for people, and for rescue when S3 is what is broken. Success never needs it.

The host key is known before the box boots (it travels in the payload), so nothing is trusted on
first use, and every call is bounded: fabric's own `timeout` doesn't cover opening a channel on a
dead connection, so `channel_timeout` does.
"""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fabric import Config, Connection
from invoke.exceptions import CommandTimedOut, UnexpectedExit

from orchestrator.clock import Clock, SystemClock
from orchestrator.errors import RemoteError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

SSH_USER = "ubuntu"
_CONNECT_S = 5
_AGAIN_S = 1
_ALIVE_S, _DEAD_AFTER_S = 15, 60
_FINAL = (paramiko.AuthenticationException, paramiko.BadHostKeyException)
# A banner that never comes is logged by paramiko with a traceback; the caller gets RemoteError.
logging.getLogger("paramiko.transport").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 pair in OpenSSH's text formats."""

    private: str
    public: str


@dataclass(frozen=True)
class Answer:
    """What a command on a box printed, and its exit status."""

    stdout: str
    stderr: str
    exited: int


def new_key_pair(comment: str) -> KeyPair:
    """A fresh pair; made per run, thrown away with it."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return KeyPair(private.decode(), f"{public.decode()} {comment}")


class _Output(io.RawIOBase):
    """A command's output; at its end it must have succeeded."""

    def __init__(self, channel: Any, where: str, quiet_s: float) -> None:
        self._channel, self._where, self._quiet_s = channel, where, quiet_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data: bytes = self._channel.recv(len(buffer))
        except TimeoutError as error:
            raise RemoteError(
                f"Nothing came from the box {self._where} for {self._quiet_s:g} s."
            ) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise RemoteError(f"The box {self._where} was lost: {error}") from error
        if not data:
            self._check_end()
        buffer[: len(data)] = data
        return len(data)

    def _check_end(self) -> None:
        ended = self._channel.status_event.wait(_CONNECT_S)
        if ended and self._channel.exit_status == 0:
            return
        said = b""
        while self._channel.recv_stderr_ready() and (more := self._channel.recv_stderr(4096)):
            said += more
        lines = said.decode("utf-8", "replace").strip().splitlines()
        raise RemoteError(
            f"The command on {self._where} ended early: "
            + (lines[-1] if lines else f"exit status {self._channel.exit_status}")
        )


def _notice_a_dead_box(transport: Any) -> None:
    """Have the kernel give up on a box that answers nothing any more, also while we only read."""
    transport.set_keepalive(_ALIVE_S)
    with contextlib.suppress(OSError, AttributeError):  # Linux only
        transport.sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER_S * 1000
        )


@dataclass(frozen=True)
class Remote:
    """One box as SSH sees it."""

    host: str
    port: int
    private_key: str
    host_key: str
    """Public half of the box's host key, OpenSSH format."""
    boot_s: float = 60
    """How long a box that doesn't answer yet is tried again."""
    clock: Clock = field(default_factory=SystemClock)

    def run(
        self, command: str, *, timeout_s: float | None = None, stdin: IO[str] | None = None
    ) -> Answer:
        """Run a command to its end, fed from `stdin` or nothing.

        Raises:
            RemoteError: no connection, a wrong host key, no time left, or the box died meanwhile.
        """
        with self._connected() as connection:
            try:
                result = connection.run(
                    command, hide=True, timeout=timeout_s, in_stream=stdin or False
                )
            except CommandTimedOut as error:
                raise RemoteError(
                    f"`{command}` on {self.host}:{self.port} took more than {timeout_s:g} s; "
                    "it goes on over there."
                ) from error
            except (UnexpectedExit, OSError, EOFError, paramiko.SSHException) as error:
                raise RemoteError(f"The box {self.host}:{self.port} was lost: {error}") from error
        if result.exited == -1:  # paramiko's word for "the channel closed without a status"
            raise RemoteError(f"The box {self.host}:{self.port} went away during the command.")
        return Answer(result.stdout, result.stderr, result.exited)

    @contextmanager
    def stream(self, command: str, *, quiet_s: float) -> Iterator[IO[bytes]]:
        """What a command prints, as bytes; its input ends when the caller leaves.

        Reading raises RemoteError when nothing came for `quiet_s`, or the command failed.

        Raises:
            RemoteError: no connection, or a wrong host key.
        """
        with self._connected() as connection:
            where = f"{self.host}:{self.port}"
            try:
                channel = connection.transport.open_session(timeout=_CONNECT_S)
                channel.settimeout(quiet_s)
                channel.exec_command(command)
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise RemoteError(f"The box {where} was lost: {error}") from error
            yield io.BufferedReader(_Output(channel, where, quiet_s), 1 << 20)

    def shell(self) -> int:
        """An interactive shell; the exit status of its last command."""
        with self._connected() as connection:
            try:
                return int(connection.shell().exited)
            except UnexpectedExit as error:  # fabric's shell doesn't warn as it says
                return int(error.result.exited)

    def _connected(self) -> AbstractContextManager[Any]:
        """A box that boots refuses, or doesn't greet: tried again; a wrong key is not."""
        until = self.clock.now() + timedelta(seconds=self.boot_s)
        while True:
            connection = self._connection()
            try:
                connection.open()
            except (OSError, EOFError, paramiko.SSHException) as error:
                connection.close()
                if isinstance(error, _FINAL) or self.clock.now() > until:
                    raise RemoteError(
                        f"No SSH to {self.host}:{self.port}: {error or type(error).__name__}",
                        hint="Is it there? gpurun status RUN. Results don't need SSH.",
                    ) from error
                self.clock.sleep(_AGAIN_S)
            else:
                _notice_a_dead_box(connection.transport)
                return connection  # type: ignore[no-any-return]  # fabric is untyped

    def _connection(self) -> Any:
        config = Config(overrides={"run": {"warn": True}, "load_ssh_configs": False})
        key = paramiko.Ed25519Key.from_private_key(io.StringIO(self.private_key))
        connection = Connection(
            self.host,
            user=SSH_USER,
            port=self.port,
            config=config,
            connect_timeout=_CONNECT_S,
            connect_kwargs={
                "pkey": key,
                "allow_agent": False,
                "look_for_keys": False,
                "banner_timeout": _CONNECT_S,
                "auth_timeout": _CONNECT_S,
                "channel_timeout": _CONNECT_S,
            },
        )
        # fabric's default policy accepts any host key.
        connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        for name, kind, host_key in self._known_host():
            connection.client.get_host_keys().add(name, kind, host_key)
        return connection

    def _known_host(self) -> Iterator[tuple[str, str, paramiko.PKey]]:
        kind, blob = self.host_key.split()[:2]
        name = self.host if self.port == paramiko.config.SSH_PORT else f"[{self.host}]:{self.port}"
        yield name, kind, paramiko.Ed25519Key(data=base64.b64decode(blob))
