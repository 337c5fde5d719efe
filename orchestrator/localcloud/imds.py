"""The instance metadata service of one box: version 2 with token sessions, served by the cloud.

The tree is asked for at each request, so that a tag set after the launch is seen. Paths follow
the EC2 User Guide, "Instance metadata categories".
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from urllib.parse import unquote

LONGEST_TOKEN_S = 21_600
_TTL, _TOKEN = "x-aws-ec2-metadata-token-ttl-seconds", "x-aws-ec2-metadata-token"
_TOKEN_PATH = "/latest/api/token"  # noqa: S105


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """What the service knows at the time of a request; `tree` maps a path to its text."""

    tree: Mapping[str, bytes]
    enabled: bool = True
    tokens_required: bool = True


class MetadataService:
    """Answers one box; `handle` is an asyncio connection handler."""

    def __init__(self, read: Callable[[], Metadata], now: Callable[[], datetime]) -> None:
        self._read, self._now = read, now
        self._tokens: dict[str, datetime] = {}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout=10)
            status, body, extra = self.answer(*_parsed(head))
            lines = [
                f"HTTP/1.1 {status.value} {status.phrase}",
                "Content-Type: text/plain",
                f"Content-Length: {len(body)}",
                "Connection: close",
                *(f"{name}: {value}" for name, value in extra.items()),
            ]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            await writer.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller went away or doesn't speak HTTP
        finally:
            writer.close()

    def answer(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[HTTPStatus, bytes, dict[str, str]]:
        metadata = self._read()
        if not metadata.enabled:
            return HTTPStatus.FORBIDDEN, b"", {}
        if method == "PUT":
            return self._new_token(path, headers)
        if method != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, b"", {}
        if not self._may_read(headers, metadata):
            return HTTPStatus.UNAUTHORIZED, b"", {}
        found = look_up(metadata.tree, path)
        return (HTTPStatus.NOT_FOUND, b"", {}) if found is None else (HTTPStatus.OK, found, {})

    def _new_token(
        self, path: str, headers: Mapping[str, str]
    ) -> tuple[HTTPStatus, bytes, dict[str, str]]:
        ttl = headers.get(_TTL, "")
        if path != _TOKEN_PATH or not ttl.isdigit() or not 1 <= int(ttl) <= LONGEST_TOKEN_S:
            return HTTPStatus.BAD_REQUEST, b"", {}
        token = secrets.token_urlsafe(40)
        self._tokens[token] = self._now() + timedelta(seconds=int(ttl))
        return HTTPStatus.OK, token.encode(), {_TTL: ttl}

    def _may_read(self, headers: Mapping[str, str], metadata: Metadata) -> bool:
        token = headers.get(_TOKEN)
        if token is None:
            return not metadata.tokens_required
        return token in self._tokens and self._now() < self._tokens[token]


def look_up(tree: Mapping[str, bytes], path: str) -> bytes | None:
    """The text at a path, or the names below it one a line; None where there is nothing."""
    asked = unquote(path.partition("?")[0])
    if (leaf := tree.get(asked)) is not None:
        return leaf
    folder = asked.rstrip("/") + "/"
    below = [known.removeprefix(folder) for known in tree if known.startswith(folder)]
    names = {name.partition("/")[0] + ("/" if "/" in name else "") for name in below if name}
    return "\n".join(sorted(names)).encode() if names else None


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    request, *lines = head.decode("latin-1").split("\r\n")
    method, path, _version = request.split()
    pairs = (line.partition(":") for line in lines if line)
    return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}
