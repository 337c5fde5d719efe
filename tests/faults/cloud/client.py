"""Clients as boto3's: operations by name, pages, botocore's errors, and hooks around all calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from tests.faults.cloud import access
from tests.faults.cloud.account import Account
from tests.faults.cloud.refusal import Refused, client_error
from tests.faults.cloud.s3 import upload_failed
from tests.faults.cloud.service import Service

_NOT_PAGED = frozenset(
    {
        "describe_addresses",
        "describe_availability_zones",
        "describe_instance_attribute",
        "describe_key_pairs",
        "describe_regions",
        "describe_secret",
        "describe_vpc_attribute",
        "list_queue_tags",
        "list_tags_for_resource",
    }
)


@dataclass(slots=True)
class Call:
    """One call as it leaves a client; `operation` is boto3's name of it."""

    service: str
    operation: str
    caller: str
    parameters: dict[str, Any]


@dataclass
class Hooks:
    """What a test does around calls."""

    before: Callable[[Call], None] | None = None
    after: Callable[[Call], None] | None = None


class Client:
    """One service's operations as attributes, made when first asked for."""

    def __init__(
        self,
        account: Account,
        hooks: Hooks,
        lock: threading.RLock,
        service: str,
        operations: Service,
        region: str,
        caller: str,
    ) -> None:
        self._account, self._hooks, self._lock = account, hooks, lock
        self._service, self._operations, self._caller = service, operations, caller
        self._region, self._checked = region, caller.startswith("box:")
        self.meta = SimpleNamespace(region_name=region, service_name=service)

    def __getattr__(self, operation: str) -> Any:
        if operation == "upload_file":
            return self._uploading
        act = getattr(self._operations, operation, None)
        if act is None or operation.startswith("_"):
            raise AttributeError(f"the model's {self._service} has no {operation}")
        called = self._calling(operation, act)
        setattr(self, operation, called)
        return called

    def can_paginate(self, operation: str) -> bool:
        listing = operation.startswith(("describe_", "list_", "get_parameters_by_path"))
        return listing and operation not in _NOT_PAGED

    def get_paginator(self, operation: str) -> Paginator:
        return Paginator(self, operation)

    def _calling(self, operation: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(**parameters: Any) -> Any:
            return self._call(Call(self._service, operation, self._caller, parameters), act)

        return call

    def _uploading(
        self, Filename: str, Bucket: str, Key: str, ExtraArgs: Any = None, **_: Any
    ) -> None:
        """Seen as the put that it is."""
        with open(Filename, "rb") as file:  # noqa: PTH123 - the transfer takes text too
            data = file.read()
        try:
            self.put_object(Bucket=Bucket, Key=Key, Body=data, **(ExtraArgs or {}))
        except ClientError as error:
            raise upload_failed(Filename, f"{Bucket}/{Key}", error) from error

    def _call(self, call: Call, act: Callable[..., Any]) -> Any:
        timeline, hooks = self._account.timeline, self._hooks
        with self._lock:
            timeline.settle()
        if hooks.before:
            hooks.before(call)
        with self._lock:
            timeline.settle()
            answer = self._acted(call, act)
        if hooks.after:
            hooks.after(call)
        return answer

    def _check(self, call: Call) -> None:
        access.check(
            self._account,
            self._region,
            self._caller,
            self._service,
            call.operation,
            call.parameters,
        )

    def _acted(self, call: Call, act: Callable[..., Any]) -> Any:
        try:
            if self._checked:
                self._check(call)
            answer = act(**call.parameters)
        except Refused as refused:
            raise client_error(access.api_name(call.operation), refused) from None
        date = _date(int(self._account.timeline.time().timestamp()))
        answer["ResponseMetadata"] = {"HTTPStatusCode": 200, "HTTPHeaders": {"date": date}}
        return answer


@lru_cache
def _date(seconds: int) -> str:
    """As HTTP says it."""
    return formatdate(seconds, usegmt=True)


class Paginator:
    """Pages of one operation, each a call of its own."""

    def __init__(self, client: Client, operation: str) -> None:
        self._client, self._operation = client, operation

    def paginate(self, *, PaginationConfig: Any = None, **parameters: Any) -> Iterator[Any]:
        act = getattr(self._client, self._operation)
        page = act(**parameters)
        yield page
        while token := page.get("NextContinuationToken"):
            page = act(**parameters, ContinuationToken=token)
            yield page
