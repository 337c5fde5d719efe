"""`GET /openapi.json`: the routes by name, for tools that ask which there are."""

from __future__ import annotations

from typing import Any

from starlette.routing import BaseRoute, Route

from agent_env.server.served import PROTOCOL


def openapi(name: str, routes: list[BaseRoute]) -> dict[str, Any]:
    """An OpenAPI document without schemas: those are at `/schema`."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            methods = sorted((route.methods or set()) - {"HEAD"})
            paths.setdefault(route.path, {}).update(
                {m.lower(): _operation(route) for m in methods}
            )
    info = {"title": name, "version": f"{PROTOCOL}.0.0"}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def _operation(route: Route) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in route.param_convertors
    ]
    return {"parameters": parameters, "responses": {"200": {"description": "OK"}}}
