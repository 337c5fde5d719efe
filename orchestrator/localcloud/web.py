"""The cloud's HTTP face: moto's services behind the strict rules, and a few routes of our own.

API calls are taken one at a time (moto isn't made for threads); object traffic runs in parallel,
but for conditional writes, which must see each other's effect. A box's own credentials may do
to S3, SSM and Secrets Manager only what its role allows.
"""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import BaseWSGIServer, make_server

from orchestrator.localcloud import kept, objects, policy
from orchestrator.localcloud.metadata import BOX_KEY_PREFIX
from orchestrator.localcloud.meter import Meter
from orchestrator.localcloud.spot import NOTICE_S, NoSuchSpot, SpotNotices

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/\d+/([^/]+)/([a-z0-9-]+)/")
# A page open in a browser on this machine could otherwise launch boxes here.
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?")
_FORM = "application/x-www-form-urlencoded"
_DENIED = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code>'
    "<Message>The box's role doesn't allow {action} on {resource}</Message></Error>"
)


class CloudApp:
    """A WSGI application. `role_of_key` finds the role behind a box's access key."""

    def __init__(
        self,
        *,
        lock: threading.RLock,
        meter: Meter,
        role_of_key: Callable[[str], Any],
        health: Callable[[], dict[str, object]],
        turn: Callable[[dict[str, Any]], None],
        spot: SpotNotices,
    ) -> None:
        self._moto: Any = DomainDispatcherApplication(create_backend_app)
        self._api_lock, self._conditional_lock = lock, threading.Lock()
        self._meter, self._role_of_key = meter, role_of_key
        self._health, self._turn, self._spot = health, turn, spot

    def __call__(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if "HTTP_ORIGIN" in environ or not _LOOPBACK.fullmatch(environ.get("HTTP_HOST", "")):
            return _reply(start, "403 Forbidden", "not for web pages", "text/plain")
        if path.startswith("/_gpurun/"):
            return self._own_route(path, environ, start)
        access_key, region, service = _signer(environ)
        if service == "s3":
            return self._object(environ, start, access_key)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)  # nobody waits for a slow sender
        from_box = access_key.startswith(BOX_KEY_PREFIX)
        with self._api_lock:
            if from_box and service in kept.SERVICES:
                target = environ.get("HTTP_X_AMZ_TARGET", "")
                request = kept.parse(service, region, target, body)
                if not self._allowed(access_key, request.action, request.resource, {}):
                    return _refuse_json(start, request)
            return self._answered(environ, start)

    def _answered(self, environ: Environ, start: StartResponse) -> list[bytes]:
        return list(self._moto(environ, start))

    def _object(self, environ: Environ, start: StartResponse, access_key: str) -> Iterable[bytes]:
        method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
        request = objects.parse(method, environ["PATH_INFO"], query)
        from_box = access_key.startswith(BOX_KEY_PREFIX)
        if from_box and not self._allowed(
            access_key, request.action, request.resource, request.context
        ):
            return _reply(
                start,
                "403 Forbidden",
                _DENIED.format(action=request.action, resource=request.resource),
                "application/xml",
            )
        if environ.get("CONTENT_TYPE", "").startswith(_FORM) and method == "PUT":
            environ["CONTENT_TYPE"] = "application/octet-stream"  # moto would parse the bytes
        conditional = "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MATCH" in environ
        if conditional and method in ("PUT", "POST"):
            with self._conditional_lock:
                body = self._answered(environ, start)
        else:
            body = self._answered(environ, start)
        if request.run:
            leaves = method == "GET" and not from_box
            size = sum(map(len, body)) if leaves else 0
            self._meter.s3_request(request.run, put=request.is_put, bytes_out=size)
        return body

    def _allowed(
        self, access_key: str, action: str, resource: str, context: Mapping[str, str]
    ) -> bool:
        role = self._role_of_key(access_key)
        return role is not None and policy.allows(
            policy.documents_of(role), action, resource, context
        )

    def _own_route(self, path: str, environ: Environ, start: StartResponse) -> list[bytes]:
        if path == "/_gpurun/health":
            return _json(start, self._health())
        if path == "/_gpurun/bill":
            run = parse_qs(environ.get("QUERY_STRING", "")).get("run", [None])[0]
            return _json(start, self._meter.bill(run, objects.stored()))
        if path == "/_gpurun/rules" and environ["REQUEST_METHOD"] == "POST":
            self._turn(_body(environ))
            return _json(start, {})
        if path == "/_gpurun/spot" and environ["REQUEST_METHOD"] == "POST":
            return self._give_notice(_body(environ), start)
        return _reply(start, "404 Not Found", "no such route", "text/plain")

    def _give_notice(self, asked: dict[str, Any], start: StartResponse) -> list[bytes]:
        try:
            seconds = float(asked.get("seconds", NOTICE_S))
            at = self._spot.give(str(asked.get("instance")), seconds)
        except (NoSuchSpot, TypeError, ValueError) as wrong:
            return _reply(start, "400 Bad Request", str(wrong), "text/plain")
        return _json(start, {"taken_at": at.isoformat()})


class QuietHandler(MotoRequestHandler):
    """One line a request would be a large file at the end of a day."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *_args: Any, **_kwargs: Any) -> None:
        """Say nothing of requests that went well; errors are still logged."""


def serve(app: CloudApp, port: int) -> BaseWSGIServer:
    """Listen on the loopback; port 0 takes a free one. The caller runs `serve_forever`."""
    return make_server("127.0.0.1", port, app, threaded=True, request_handler=QuietHandler)


def _signer(environ: Environ) -> tuple[str, str, str]:
    """Access key, region and service that a request was signed for; unsigned means S3."""
    signed = environ.get("HTTP_AUTHORIZATION") or ""
    if found := _CREDENTIAL.search(signed):
        return found[1], found[2], found[3]
    query = parse_qs(environ.get("QUERY_STRING", ""))
    if found := _CREDENTIAL.search("Credential=" + query.get("X-Amz-Credential", [""])[0]):
        return found[1], found[2], found[3]
    return "", "", "s3"


def _refuse_json(start: StartResponse, request: kept.KeptRequest) -> list[bytes]:
    words = f"The box's role doesn't allow {request.action} on {request.resource}"
    text = json.dumps({"__type": "AccessDeniedException", "message": words})
    return _reply(start, "400 Bad Request", text, "application/x-amz-json-1.1")


def _body(environ: Environ) -> dict[str, Any]:
    size = int(environ.get("CONTENT_LENGTH") or 0)
    said: dict[str, Any] = json.loads(environ["wsgi.input"].read(size))
    return said


def _json(start: StartResponse, value: dict[str, object]) -> list[bytes]:
    return _reply(start, "200 OK", json.dumps(value), "application/json")


def _reply(start: StartResponse, status: str, text: str, kind: str) -> list[bytes]:
    body = text.encode()
    start(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]
