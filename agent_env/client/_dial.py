"""Where a server is and how it is reached: what both kinds of connection have in common."""

from __future__ import annotations

import os
import re
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from websockets.exceptions import (
    ConnectionClosed,
    InvalidMessage,
    InvalidStatus,
    WebSocketException,
)

from agent_env.client._talk import Cut
from agent_env.errors import (
    ProtocolError,
    ServerDown,
    SessionError,
    SessionLost,
    Unauthorized,
)

MAX_REPLY_BYTES = 100 * 2**20
TOKEN_VARIABLE = "AGENT_ENV_TOKEN"  # noqa: S105 - the name of it
OWNER_HEADER = "Agent-Env-Owner"
MOST_OWNER = 600
RUN = time.time_ns() // 1_000_000
"""This process's run of whatever owner: milliseconds since the epoch, so that the next one's is
greater. What is pickled for another process keeps it."""
GOODBYE = '{"type": "close"}'
CLOSE_TIMEOUT_S = 1.0

FAULTS = (OSError, WebSocketException, EOFError)
_BROKE = (ConnectionError, EOFError, ConnectionClosed)
"""Somebody took the connection and is gone: a server that is stopping, or one of its workers."""


@dataclass(frozen=True)
class Address:
    """A server's address and what it takes to be let in."""

    url: str
    token: str | None = field(default=None, repr=False)
    owner: str | None = None
    """Whose sessions these are; a newer run of the owner ends those of the older ones."""
    run: int = 0

    @classmethod
    def of(cls, url: str, token: str | None = None, owner: str | None = None) -> Address:
        """Without a token, the one in AGENT_ENV_TOKEN. Raises ValueError for what can't be."""
        if owner is not None and not 1 <= len(quote(owner, safe="")) <= MOST_OWNER:
            raise ValueError(f"owner: a name of 1 to {MOST_OWNER} characters, percent-encoded")
        token = token or os.environ.get(TOKEN_VARIABLE) or None
        if token is not None and not re.fullmatch(r"[!-~]+", token):
            raise ValueError(f"the token ({TOKEN_VARIABLE}) has characters no header can carry")
        return cls(_http_url(url), token, owner, RUN)

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return bearer if self.owner is None else bearer | {OWNER_HEADER: self._owned}

    @property
    def _owned(self) -> str:
        return f"{quote(self.owner or '', safe='')}/{self.run}"

    @property
    def loopback(self) -> bool:
        """True for an address of this machine, which no proxy must see."""
        host = urlsplit(self.url).hostname or ""
        with suppress(ValueError):
            return ip_address(host).is_loopback
        return host == "localhost"

    def tls(self) -> ssl.SSLContext | None:
        """Trusts the system's authorities, or SSL_CERT_FILE's; None for a plain address."""
        if not self.url.startswith("https:"):
            return None
        return _trusting(os.environ.get("SSL_CERT_FILE"))

    def sessions(self, query: dict[str, str]) -> str:
        """The address of its sessions."""
        address = self.url.replace("http", "ws", 1) + "/ws"
        return f"{address}?{urlencode(query)}" if query else address

    def options(self, timeout_s: float) -> dict[str, Any]:
        """How a connection is opened, whichever kind."""
        return {
            "additional_headers": self.headers,
            "open_timeout": timeout_s,
            "close_timeout": CLOSE_TIMEOUT_S,
            # The server pings; each of our own waits has an end without it.
            "ping_interval": None,
            "compression": None,
            "max_size": MAX_REPLY_BYTES,
            "proxy": None if self.loopback else True,
            "ssl": self.tls(),
        }


@cache
def _trusting(_authorities: str | None) -> ssl.SSLContext:
    # The library reads the variable by itself; it is named to notice when it changes.
    return ssl.create_default_context()


def failed(address: Address, error: Exception) -> SessionError | Cut:
    """What a failed handshake means."""
    cause = error.__cause__ if isinstance(error, InvalidMessage) else error
    if isinstance(cause, _BROKE) and not isinstance(cause, ConnectionRefusedError):
        return Cut(None, f"the connection to {address.url} broke during its handshake: {error}")
    return refused(address, error)


def refused(address: Address, error: Exception) -> SessionError:
    """What a failed request means."""
    if isinstance(error, InvalidStatus):
        return refused_with(address, error.response.status_code, "/ws")
    if isinstance(error, ssl.SSLCertVerificationError):
        message = f"{address.url}: {error.verify_message}; name its CA in SSL_CERT_FILE"
        return ProtocolError(message)
    return ServerDown(f"{address.url} can't be reached: {error}")


def refused_with(address: Address, status: int, path: str) -> SessionError:
    """What an HTTP status instead of an answer means."""
    if status == 401:
        wrong = "has another token than ours" if address.token else "wants a token"
        return Unauthorized(f"{address.url} {wrong}: set {TOKEN_VARIABLE}, or give token=")
    if status == 409:
        said = f"a newer run of {address.owner!r} has taken its sessions over: only one may go on"
        return SessionLost(f"{address.url}: {said}")
    if status >= 500:
        return ServerDown(f"{address.url} answers HTTP {status}")
    return ProtocolError(f"{address.url} is no env server: HTTP {status} on {path}")


def cut(error: Exception) -> Cut:
    """What a connection that broke said last."""
    if not isinstance(error, ConnectionClosed):
        return Cut(None, str(error))
    ours = error.rcvd is None or error.rcvd_then_sent is False
    first = error.sent if ours else error.rcvd
    return Cut(first.code if first else None, str(error))


def _http_url(url: object) -> str:
    if not isinstance(url, str) or not _is_address(url):
        raise ValueError(f"an env server's address is like http://host:8000, not {url!r}")
    scheme, _, rest = url.partition("://")
    return f"{scheme.replace('ws', 'http')}://{rest.rstrip('/').removesuffix('/ws')}"


def _is_address(url: str) -> bool:
    """A port above 65535 would be taken for another one, without a word."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https", "ws", "wss") and bool(parts.hostname) and port != 0
