"""S3 as a box sees it whose answers are kept: with no more than it needs to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from tests.faults.cloud.s3 import Body

_TOLD = ("Key", "Size", "ETag", "UploadId", "Uploads", "Parts", "PartNumber", "Contents")


class Box(Protocol):
    """Whose answers are kept."""

    def real_client(self, *, fast: bool) -> Any: ...

    def did(self, what: str, about: Any, doing: Callable[[], Any]) -> Any: ...


class Client:
    """All operations of S3 by their names."""

    def __init__(self, box: Box, fast: bool) -> None:
        self._box, self._fast = box, fast

    def __getattr__(self, operation: str) -> Any:
        return lambda **parameters: self._call(operation, parameters)

    def get_paginator(self, operation: str) -> Client:
        return Pages(self._box, self._fast, operation)

    def _call(self, operation: str, parameters: dict[str, Any]) -> Any:
        real = self._box.real_client(fast=self._fast)
        told = self._box.did(
            "call",
            (self._fast, operation, parameters),
            lambda: asked(real, operation, parameters),
        )
        return _given(*told)


class Pages(Client):
    def __init__(self, box: Box, fast: bool, operation: str) -> None:
        super().__init__(box, fast)
        self._operation = operation

    def paginate(self, **parameters: Any) -> Iterator[Any]:
        return iter(self._call(f"pages:{self._operation}", parameters))


def is_outage(answer: tuple[str, Any]) -> bool:
    """S3 refuses for a while."""
    kind, told = answer
    return kind == "refused" and int(told[0]["ResponseMetadata"]["HTTPStatusCode"]) >= 500


def asked(real: Any, operation: str, parameters: dict[str, Any]) -> tuple[str, Any]:
    """The answer or the refusal, without what is another in each life and nobody reads."""
    try:
        if operation.startswith("pages:"):
            pages = real.get_paginator(operation[6:]).paginate(**parameters)
            return "pages", [_plain(page) for page in pages]
        answer = getattr(real, operation)(**parameters)
    except ClientError as error:
        return "refused", (error.response, error.operation_name)
    except BotoCoreError as error:
        return "lost", error
    body = answer["Body"].read() if "Body" in answer else None
    return "answer", (_plain(answer), body)


def _plain(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {name: _plain(value) for name, value in answer.items() if name in _TOLD}
    return [_plain(each) for each in answer] if isinstance(answer, list) else answer


def _given(kind: str, told: Any) -> Any:
    if kind == "lost":
        raise told
    if kind == "refused":
        raise ClientError(*told)
    if kind == "pages":
        return told
    answer, body = told
    return answer if body is None else {**answer, "Body": Body(body)}
