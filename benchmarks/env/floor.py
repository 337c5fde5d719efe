"""The floor: a bare Starlette websocket that reads the same frames and sends the same replies.

It holds no task, checks nothing, writes nothing down. The replies are those of the server that it
is compared with: a client hands it one with its reset.
"""

from __future__ import annotations

import argparse
import json

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from agent_env.server.process import EnvServer


async def echo(socket: WebSocket) -> None:
    """Parse a frame, put its number into the reply, send that."""
    await socket.accept()
    reply: dict[str, object] = {}
    try:
        while True:
            frame = json.loads(await socket.receive_text())
            if frame["type"] == "reset":
                reply = frame["data"]["reply"]
            else:
                reply["seq"] = frame["data"]["metadata"]["seq"]
            await socket.send_text(json.dumps(reply))
    except WebSocketDisconnect:
        return


async def health(_: Request) -> JSONResponse:
    return JSONResponse({"status": "healthy"})


def main() -> None:
    """Serve with the settings of the server that it is compared with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port: int = parser.parse_args().port
    app = Starlette(routes=[WebSocketRoute("/ws", echo), Route("/health", health)])
    config = EnvServer(app, lambda: None).config
    config.port = port
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
