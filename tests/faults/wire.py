"""What lies between our code and the cloud: botocore's retries, and the faults.

Real clients try again by themselves when an answer is lost or says to come back later, which
doubles effects. A model client has no such layer, so this is it (standard mode: six attempts, one
for a `fast` client; box: four and one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from botocore.exceptions import ClientError, ConnectionClosedError

TRANSIENT = {
    "RequestLimitExceeded",
    "InternalError",
    "SlowDown",
    "ServiceUnavailable",
    "Throttling",
}
BACK_OFF_S = 1.0


class Strike(Protocol):
    """What a call may meet; `before` and `after` may raise. `count` numbers an actor's calls.

    `attempts`: how often it's tried while its answers are lost or transient errors.
    """

    def count(self, actor: str, operation: str, attempts: int) -> int: ...

    def before(self, actor: str, operation: str, nth: int, parameters: dict[str, Any]) -> None: ...

    def after(self, actor: str, operation: str, nth: int, parameters: dict[str, Any]) -> None: ...


@dataclass
class Fate:
    """What all clients of one process share: once it has died, none of them calls again."""

    died: BaseException | None = None


class Wire:
    """A client of one service for one actor."""

    def __init__(
        self,
        client: Any,
        service: str,
        actor: str,
        attempts: int,
        strike: Strike,
        wait: Callable[[float], None],
        fate: Fate | None = None,
    ) -> None:
        self._client, self._service, self._actor = client, service, actor
        self._attempts, self._strike, self._wait, self._fate = (
            attempts,
            strike,
            wait,
            fate or Fate(),
        )

    def __getattr__(self, operation: str) -> Any:
        if operation in ("can_paginate", "meta", "exceptions", "get_waiter"):
            return getattr(self._client, operation)
        real = getattr(self._client, operation)

        def call(*args: Any, **parameters: Any) -> Any:
            return self._call(operation, lambda: real(*args, **parameters), parameters)

        setattr(self, operation, call)
        return call

    def get_paginator(self, operation: str) -> Any:
        return _Pages(self, operation)

    def pages(self, operation: str, parameters: dict[str, Any]) -> list[Any]:
        real = self._client.get_paginator(operation)
        return self._call(operation, lambda: list(real.paginate(**parameters)), parameters)  # type: ignore[no-any-return]

    def _call(self, operation: str, real: Callable[[], Any], parameters: dict[str, Any]) -> Any:
        if self._fate.died is not None:  # a killed process has no `except` and no `finally`
            raise self._fate.died
        try:
            return self._tried(operation, real, parameters)
        except Exception:
            raise
        except BaseException as died:
            self._fate.died = died
            raise

    def _tried(self, operation: str, real: Callable[[], Any], parameters: dict[str, Any]) -> Any:
        nth = self._strike.count(self._actor, operation, self._attempts)
        for attempt in range(1, self._attempts + 1):
            try:
                self._strike.before(self._actor, operation, nth, parameters)
                answer = real()
                self._strike.after(self._actor, operation, nth, parameters)
            except (ClientError, ConnectionClosedError) as error:
                if attempt == self._attempts or not _is_transient(error):
                    raise
                self._wait(BACK_OFF_S)
            else:
                return answer
        raise AssertionError("unreachable")


class _Pages:
    def __init__(self, wire: Wire, operation: str) -> None:
        self._wire, self._operation = wire, operation

    def paginate(self, **parameters: Any) -> Iterator[Any]:
        return iter(self._wire.pages(self._operation, parameters))


def _is_transient(error: Exception) -> bool:
    if isinstance(error, ClientError):
        answer = error.response
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        return answer["Error"]["Code"] in TRANSIENT or status in (500, 502, 503, 504)
    return True


def refusal(operation: str, code: str, status: int = 400) -> ClientError:
    """An answer of AWS that says no."""
    answer: Any = {
        "Error": {"Code": code, "Message": "injected"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, operation)


def lost(operation: str) -> ConnectionClosedError:
    return ConnectionClosedError(endpoint_url=f"https://aws.invalid/{operation}")
