"""`POST /mcp`: OpenEnv's JSON-RPC without a socket, and the sessions that it opens and closes."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from agent_env.server import mcp
from agent_env.server.protocol import Reset, parse_reset
from agent_env.server.session import Fenced, Session
from agent_env.server.sessions import Sessions


def mcp_route(sessions: Sessions) -> Route:
    """Sessions of this route have no socket, so they last for the lease after each call."""

    async def endpoint(request: Request) -> JSONResponse:
        reply = await mcp.answer_text(await request.body(), _methods(sessions))
        # With several workers the next request of this connection is for another process.
        return JSONResponse(reply, headers={"Connection": "close"})

    return Route("/mcp", endpoint, methods=["POST"])


def _methods(sessions: Sessions) -> dict[str, mcp.Method]:
    async def create(params: dict[str, Any]) -> Any:
        reset = parse_reset(params)
        session = await sessions.create()
        await _begun(sessions, session, reset)
        return {"session_id": session.id}

    async def close(params: dict[str, Any]) -> Any:
        session = _found(sessions, params)
        if session.holder is not None:
            message = f"the session {session.id!r} is held by a websocket, whose end is its end"
            raise mcp.RpcError(mcp.INVALID_REQUEST, message)
        sessions.end(session)
        return {"session_id": session.id, "closed": True}

    async def list_tools(params: dict[str, Any]) -> Any:
        if "session_id" not in params:
            return {"tools": next(iter(sessions.served.splits.values())).listed_tools}
        return await _asked(sessions, "tools/list", params)

    async def call_tool(params: dict[str, Any]) -> Any:
        return await _asked(sessions, "tools/call", params)

    return {
        "tools/list": list_tools,
        "tools/call": call_tool,
        "openenv/session/create": create,
        "openenv/session/close": close,
    }


async def _begun(sessions: Sessions, session: Session, reset: Reset) -> None:
    try:
        await session.answer(reset, None)
    except BaseException:
        sessions.end(session)
        raise
    sessions.hold(session, sessions.times.lease_s)


async def _asked(sessions: Sessions, method: str, params: dict[str, Any]) -> Any:
    """As OpenEnv's tool client asks: its socket resets the session that it calls tools of here."""
    session = _found(sessions, params)
    if session.holder is None:
        sessions.hold(session, sessions.times.lease_s)
    try:
        return await mcp.tool_methods(session, session.holder)[method](params)
    except Fenced:
        message = f"the session {session.id!r} went on over another socket meanwhile; ask again"
        raise mcp.RpcError(mcp.INVALID_REQUEST, message) from None


def _found(sessions: Sessions, params: dict[str, Any]) -> Session:
    session_id = params.get("session_id")
    session = sessions.find(session_id) if isinstance(session_id, str) else None
    if session is None:
        message = f"there is no session {session_id!r}: openenv/session/create makes one"
        raise mcp.RpcError(mcp.INVALID_PARAMS, message)
    return session
