"""A queue that is being deleted: still listed for a while, and its name not free for a minute."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from moto.sqs.exceptions import SQSException
from moto.sqs.models import SQSBackend

from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import StrictRules

_NAME_KEPT = timedelta(seconds=60)


class QueueDeletedRecently(SQSException):
    """As SQS words it; moto has no such error of its own."""

    def __init__(self) -> None:
        super().__init__(
            "AWS.SimpleQueueService.QueueDeletedRecently",
            "You must wait 60 seconds after deleting a queue before you can create another with "
            "the same name.",
        )


def install(patches: Patches, rules: StrictRules) -> None:
    patches.replace(SQSBackend, "create_queue", lambda stock: _create(stock, rules))
    patches.replace(SQSBackend, "delete_queue", lambda stock: _delete(stock, rules))
    patches.replace(SQSBackend, "list_queues", lambda stock: _list(stock, rules))


def _deleted(backend: Any) -> dict[str, Any]:
    """Queues that were deleted, each with the time of it."""
    found: dict[str, Any] = backend.__dict__.setdefault("strict_deleted", {})
    return found


def _create(stock: Any, rules: StrictRules) -> Any:
    def create_queue(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        _, deleted_at = _deleted(self).get(name, (None, None))
        if deleted_at is not None and rules.now() < deleted_at + _NAME_KEPT:
            raise QueueDeletedRecently
        _deleted(self).pop(name, None)
        return stock(self, name, *args, **kwargs)

    return create_queue


def _delete(stock: Any, rules: StrictRules) -> Any:
    def delete_queue(self: Any, queue_name: str) -> Any:
        queue = self.queues.get(queue_name)
        stock(self, queue_name)
        _deleted(self)[queue_name] = (queue, rules.now())

    return delete_queue


def _list(stock: Any, rules: StrictRules) -> Any:
    def list_queues(self: Any, queue_name_prefix: str) -> Any:
        lingering = timedelta(seconds=rules.queue_linger_s)
        ghosts = [
            queue
            for name, (queue, at) in _deleted(self).items()
            if name.startswith(queue_name_prefix or "") and rules.now() < at + lingering
        ]
        return [*stock(self, queue_name_prefix), *ghosts]

    return list_queues
