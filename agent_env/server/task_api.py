"""The Task API: which tasks there are, over plain HTTP. Discovery only; it opens no episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from agent_env.errors import TaskNotFound
from agent_env.server.served import Served, ServedSplit


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    split: str


class _IndexBody(_Body):
    index: int


class _RangeBody(_Body):
    start: int | None = None
    stop: int | None = None


B = TypeVar("B", bound=_Body)


def task_routes(served: Served) -> list[Route]:
    """OpenEnv's routes. 404 unknown env, 400 unknown split or index, 422 a malformed body."""

    async def environments(_: Request) -> JSONResponse:
        return JSONResponse([served.name])

    async def splits(request: Request) -> JSONResponse:
        _check_env(served, request)
        kinds = ("train", "validation", "test")
        return JSONResponse(
            [{"name": n, "type": n if n in kinds else "validation"} for n in served.splits]
        )

    async def tasks(request: Request) -> JSONResponse:
        _, split = await _body(served, request, _Body)
        return JSONResponse({"tasks": _rows(split), "env_name": served.name})

    async def num_tasks(request: Request) -> JSONResponse:
        _, split = await _body(served, request, _Body)
        return JSONResponse({"num_tasks": len(split.tasks)})

    async def task(request: Request) -> JSONResponse:
        body, split = await _body(served, request, _IndexBody)
        found = _or_400(lambda: split.task(body.index))
        return JSONResponse({"task": split.listed(found).model_dump(exclude={"data"})})

    async def task_range(request: Request) -> JSONResponse:
        body, split = await _body(served, request, _RangeBody)
        return JSONResponse({"tasks": _rows(split)[body.start : body.stop]})

    return [
        Route("/list_environments", environments),
        Route("/{env}/splits", splits),
        Route("/{env}/tasks", tasks, methods=["POST"]),
        Route("/{env}/num_tasks", num_tasks, methods=["POST"]),
        Route("/{env}/task", task, methods=["POST"]),
        Route("/{env}/task_range", task_range, methods=["POST"]),
    ]


def _check_env(served: Served, request: Request) -> None:
    asked = request.path_params["env"]
    if asked.lower() != served.name.lower():
        raise HTTPException(404, f"no environment {asked!r}; this server has {served.name!r}")


async def _body(served: Served, request: Request, model: type[B]) -> tuple[B, ServedSplit]:
    _check_env(served, request)
    try:
        body = model.model_validate_json(await request.body())
    except ValidationError as error:
        raise HTTPException(422, error.json(include_url=False)) from None
    return body, _or_400(lambda: served.split(body.split))


T = TypeVar("T")


def _or_400(look_up: Callable[[], T]) -> T:
    try:
        return look_up()
    except TaskNotFound as error:
        raise HTTPException(400, str(error)) from None


def _rows(split: ServedSplit) -> list[dict[str, Any]]:
    return [split.listed(task).model_dump(exclude={"data"}) for task in split.tasks]
