"""OpenEnv's wire protocol as its own server speaks it, without OpenEnv: no extension of ours.

A session is a socket and dies with it; a socket gets a fresh environment. (The same tests run
against the real package in `interop/`, where that is installed.)
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

NAME = "sums"
SPLITS = [{"name": "train", "type": "train"}]
TASKS: list[dict[str, Any]] = [
    {"id": "a", "index": 0, "prompt": "Sum to 3.", "goal": 3},
    {"id": "b", "index": 1, "prompt": "Sum to 4.", "level": 2, "hints": ["be", "brave"]},
]
ADD: dict[str, Any] = {
    "name": "add",
    "description": "Add a number.",
    "input_schema": {
        "type": "object",
        "properties": {"n": {"type": "integer", "description": "What to add."}},
        "required": ["n"],
    },
    "meta": None,
}


class Stock:
    """One server; `rewards` are what the steps of every episode are worth, in turn."""

    def __init__(self, *, sessions: int = 8, tasks: list[dict[str, Any]] | None = None) -> None:
        self.sessions = sessions
        self.open = 0
        self.tasks = tasks
        self.rewards: list[float | None] = [0.25, 0.5]
        self.lists_tools = True
        self.frames: list[dict[str, Any]] = []

    def app(self) -> Starlette:
        routes: list[BaseRoute] = [WebSocketRoute("/ws", self._session)]
        routes += [Route("/health", lambda _: JSONResponse({"status": "healthy"}))]
        if self.tasks is not None:
            routes += [
                Route("/list_environments", lambda _: JSONResponse([NAME])),
                Route(
                    f"/{NAME}/splits", lambda _: JSONResponse([{"name": "train", "type": None}])
                ),
                Route(f"/{NAME}/tasks", self._tasks, methods=["POST"]),
            ]
        return Starlette(routes=routes)

    async def _tasks(self, request: Request) -> JSONResponse:
        if (await request.json())["split"] != "train":
            return JSONResponse({"detail": "no such split"}, 400)
        return JSONResponse({"tasks": self.tasks, "env_name": NAME})

    async def _session(self, socket: WebSocket) -> None:
        await socket.accept()
        if "session_id" in socket.query_params:
            await self._refuse(socket, "SESSION_ERROR")
        elif self.open >= self.sessions:
            await self._refuse(socket, "CAPACITY_REACHED")
        else:
            self.open += 1
            try:
                await self._episodes(socket)
            except WebSocketDisconnect:
                pass
            finally:
                self.open -= 1

    async def _refuse(self, socket: WebSocket, code: str) -> None:
        await socket.send_json({"type": "error", "data": {"message": "no", "code": code}})
        await socket.close()

    async def _episodes(self, socket: WebSocket) -> None:
        total = step = 0
        while True:
            frame = await socket.receive_json()
            self.frames.append(frame)
            if frame["type"] == "close":
                await socket.close()
                return
            data = frame.get("data", {})
            observation: dict[str, Any] = {"metadata": {}}
            reward: float | None = None
            if frame["type"] == "state":
                await socket.send_json({"type": "state", "data": {"step_count": step}})
                continue
            if frame["type"] == "reset":
                total = step = 0
            elif data["type"] == "list_tools":
                if not self.lists_tools:
                    await socket.send_json(_invalid())
                    continue
                observation["tools"] = [ADD]
            else:
                total, reward, step = total + data["arguments"]["n"], self.rewards[step], step + 1
                content = [{"type": "text", "text": str(total)}]
                observation |= {"tool_name": "add", "result": {"content": content}, "error": None}
            told = {"observation": observation, "reward": reward, "done": False}
            await socket.send_json({"type": "observation", "data": told})


def _invalid() -> dict[str, Any]:
    data = {"message": "no such action", "code": "VALIDATION_ERROR", "errors": []}
    return {"type": "error", "data": data}
