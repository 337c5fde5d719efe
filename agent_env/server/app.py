"""The app: sessions over `WS /ws`, tasks and facts over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute

from agent_env.bundle import Bundle
from agent_env.server.guard import Guard
from agent_env.server.journal import Journals
from agent_env.server.mcp_api import mcp_route
from agent_env.server.openapi import openapi
from agent_env.server.protocol import CallTool, ListTools, Reset
from agent_env.server.served import Reward, Served, described, serve
from agent_env.server.serving import Serving
from agent_env.server.sessions import Sessions
from agent_env.server.task_api import task_routes
from agent_env.types import EpisodeState, Observation


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
    journals = None if journal is None else Journals(Path(journal), max_concurrent_envs)
    sessions = Sessions(served, max_concurrent_envs, journals)
    serving = Serving(sessions)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sessions.begin()
        serving.begin()
        yield
        serving.close()
        sessions.close()

    routes = [
        WebSocketRoute("/ws", serving),
        WebSocketRoute("/mcp", serving),
        mcp_route(sessions),
        *_fact_routes(served, sessions),
        *task_routes(served),
    ]
    app = Starlette(
        routes=[
            *routes,
            Route("/openapi.json", _answer(lambda: (200, openapi(served.name, routes)))),
        ],
        middleware=[] if token is None else [Middleware(Guard, token=token)],
        exception_handlers={HTTPException: _as_json},
        lifespan=lifespan,
    )
    app.state.sessions = sessions
    return app


def _fact_routes(served: Served, sessions: Sessions) -> list[Route]:
    facts: dict[str, Callable[[], tuple[int, dict[str, Any]]]] = {
        "/health": lambda: _health(sessions),
        "/capacity": lambda: (200, _capacity(sessions)),
        "/metadata": lambda: (200, _metadata(served)),
        "/schema": lambda: (200, _SCHEMA),
        "/tools": lambda: (200, described(served) | {"journal": sessions.journaled}),
    }
    return [Route(path, _answer(fact)) for path, fact in facts.items()]


def _answer(fact: Callable[[], tuple[int, dict[str, Any]]]) -> Any:
    async def endpoint(_: Request) -> JSONResponse:
        status, body = fact()
        return JSONResponse(body, status)

    return endpoint


def _health(sessions: Sessions) -> tuple[int, dict[str, Any]]:
    return (503, {"status": "stopping"}) if sessions.stopping else (200, {"status": "healthy"})


def _capacity(sessions: Sessions) -> dict[str, Any]:
    return {
        "max_sessions": sessions.slots.limit,
        "active_sessions": sessions.slots.active,
        "reserved_sessions": sessions.slots.claimed,
        "waiting": sessions.slots.waiting,
        "busy_sessions": sessions.busy,
        "free": sessions.slots.free,
    }


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
    return JSONResponse({"detail": error.detail}, error.status_code)
