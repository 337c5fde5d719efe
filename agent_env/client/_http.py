"""What a client asks over plain HTTP: facts and tasks. Few calls, before anything is trained.

With the standard library's client: another one would cost every import of this package more than
all the rest of it.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from agent_env.client._dial import Address, refused, refused_with
from agent_env.errors import ProtocolError, TaskNotFound

HTTP_TIMEOUT_S = 30.0


class NoSuchPath(ProtocolError):
    """The server has no such route."""


def ask(address: Address, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """The JSON that a route answers.

    Raises ServerDown, Unauthorized, ProtocolError, and for a split or index that isn't there
    TaskNotFound.
    """
    request = Request(  # noqa: S310 - the address was checked to be http or https
        address.url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **address.headers},
        method=method,
    )
    try:
        with _opener(address).open(request, timeout=HTTP_TIMEOUT_S) as reply:
            return _read(address, path, reply.read)
    except HTTPError as error:
        with error:
            raise _refusal(address, path, error) from None
    except URLError as error:
        reason = error.reason if isinstance(error.reason, OSError) else error
        raise refused(address, reason) from error
    except (OSError, http.client.HTTPException) as error:
        raise refused(address, error) from error


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would carry the token to somebody else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener(address: Address) -> OpenerDirector:
    handlers: list[BaseHandler] = [_NoRedirect()]
    context: ssl.SSLContext | None = address.tls()
    if context is not None:
        handlers.append(HTTPSHandler(context=context))
    if address.loopback:
        handlers.append(ProxyHandler({}))
    return build_opener(*handlers)


def _refusal(address: Address, path: str, error: HTTPError) -> Exception:
    if error.code == 400:
        answer = _read(address, path, error.read)
        if isinstance(answer, dict) and "detail" in answer:
            return TaskNotFound(str(answer["detail"]))
    if error.code in (404, 405, 501):
        return NoSuchPath(f"{address.url} has no {path}: HTTP {error.code}")
    return refused_with(address, error.code, path)


def _read(address: Address, path: str, read: Callable[[], bytes]) -> Any:
    try:
        return json.loads(read())
    except ValueError as error:
        raise ProtocolError(f"{address.url}{path} answers no JSON: {error}") from error
