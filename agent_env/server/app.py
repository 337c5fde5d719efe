"""The app: sessions over `WS /ws`, tasks and facts over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Lifespan

from agent_env.bundle import Bundle
from agent_env.errors import JournalError
from agent_env.server.bodies import BodyLimit
from agent_env.server.guard import Guard
from agent_env.server.journal import Journals
from agent_env.server.mcp_api import mcp_route
from agent_env.server.openapi import openapi
from agent_env.server.owners import Gate, Owner
from agent_env.server.protocol import CallTool, ListTools, Reset
from agent_env.server.served import Reward, Served, described, serve
from agent_env.server.serving import Away, Serving
from agent_env.server.sessions import RETRY_AFTER_S, Sessions
from agent_env.server.slots import Slots
from agent_env.server.task_api import task_routes
from agent_env.types import EpisodeState, Observation


class Desk(Protocol):
    """What the facts are asked of: the sessions of this process, or of its workers."""

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for."""

    @property
    def journaled(self) -> bool:
        """Whether sessions outlive the process."""

    @property
    def busy(self) -> int:
        """Steps that a thread is at."""

    def capacity(self) -> dict[str, int]:
        """Counts of sessions by what became of them."""

    def admit(self, owner: Owner) -> bool:
        """End what older runs of that owner have; False if it is itself an older one."""

    async def drain(self, grace_s: float) -> None:
        """Take no new session or step; let the running steps end within the grace time."""


def build_app(
    bundle: Bundle | Sequence[Bundle] | Mapping[str, Bundle],
    *,
    reward: Reward = None,
    max_concurrent_envs: int = 8,
    journal: str | Path | None = None,
    token: str | None = None,
) -> Starlette:
    """An ASGI app that serves the bundles' tasks as episodes.

    `reward` is a score's id, "mean", or a function of the scores by id; without it each bundle's
    own `reward` decides. `max_concurrent_envs` is the number of sessions at one time: a trainer
    needs one for each rollout of a batch. `journal` is a folder: sessions written down there
    outlive the process. Raises BundleError for what can't be served, JournalError for the
    folder.
    """
    served = serve(bundle, reward)
    if journal == "":
        raise JournalError("the name of the journal folder is empty")
    journals = None if journal is None else Journals(Path(journal), max_concurrent_envs)
    return app_of(served, journals, max_concurrent_envs, token)


def app_of(
    served: Served, journals: Journals | None, max_sessions: int, token: str | None
) -> Starlette:
    """An app that is a whole server: it keeps room for the sessions of before."""
    slots = Slots(max_sessions)
    if journals is not None:
        journals.reclaim(slots)
    return sessions_app(Sessions(served, slots, journals), token)


def sessions_app(sessions: Sessions, token: str | None) -> Starlette:
    """An app whose sessions live in this process."""
    serving = Serving(sessions)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sessions.begin()
        serving.begin()
        yield
        serving.close()
        sessions.close()

    sockets: list[BaseRoute] = [WebSocketRoute("/ws", serving), WebSocketRoute("/mcp", serving)]
    return assembled(sessions.served, sessions, [*sockets, mcp_route(sessions)], token, lifespan)


def front_app(served: Served, desk: Desk, token: str | None) -> Starlette:
    """An app for the front of workers: its websockets are those that no worker can have."""
    sockets: list[BaseRoute] = [WebSocketRoute("/ws", Away()), WebSocketRoute("/mcp", Away())]
    return assembled(served, desk, [*sockets, Route("/mcp", _no_worker, methods=["POST"])], token)


async def _no_worker(_: Request) -> JSONResponse:
    headers = {"Retry-After": f"{RETRY_AFTER_S:.0f}", "Connection": "close"}
    return JSONResponse({"detail": "no worker is free, or the server is stopping"}, 503, headers)


def assembled(
    served: Served,
    desk: Desk,
    routes: list[BaseRoute],
    token: str | None,
    lifespan: Lifespan[Starlette] | None = None,
) -> Starlette:
    """The facts and the Task API beside these routes; `app.state.sessions` is the desk."""
    routes = [*routes, *_fact_routes(served, desk), *task_routes(served)]
    document = openapi(served.name, routes)
    guard = [] if token is None else [Middleware(Guard, token=token)]
    app = Starlette(
        routes=[*routes, Route("/openapi.json", _answer(lambda: (200, document)))],
        middleware=[*guard, Middleware(Gate, host=desk), Middleware(BodyLimit)],
        exception_handlers={HTTPException: _as_json},
        lifespan=lifespan,
    )
    app.state.sessions = desk
    return app


def _fact_routes(served: Served, desk: Desk) -> list[Route]:
    facts: dict[str, Callable[[], tuple[int, dict[str, Any]]]] = {
        "/health": lambda: _health(desk),
        "/capacity": lambda: (200, desk.capacity() | {"busy_sessions": desk.busy}),
        "/metadata": lambda: (200, _metadata(served)),
        "/schema": lambda: (200, _SCHEMA),
        "/tools": lambda: (200, described(served) | {"journal": desk.journaled}),
    }
    return [Route(path, _answer(fact)) for path, fact in facts.items()]


def _answer(fact: Callable[[], tuple[int, dict[str, Any]]]) -> Any:
    async def endpoint(_: Request) -> JSONResponse:
        status, body = fact()
        return JSONResponse(body, status)

    return endpoint


def _health(desk: Desk) -> tuple[int, dict[str, Any]]:
    return (503, {"status": "stopping"}) if desk.stopping else (200, {"status": "healthy"})


def _metadata(served: Served) -> dict[str, Any]:
    return {
        "name": served.name,
        "description": f"Tasks of {', '.join(served.hashes)}",
        "readme_content": None,
        "version": None,
        "author": None,
        "documentation_url": None,
        "content_hashes": served.hashes,
    }


_SCHEMA = {
    "action": TypeAdapter(ListTools | CallTool).json_schema(),
    "observation": Observation.model_json_schema(),
    "state": EpisodeState.model_json_schema(),
    "reset_observation": Observation.model_json_schema(),
    "reset": Reset.model_json_schema(),
}


async def _as_json(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class alone
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
