"""SQS: enough for dead letters, with a name that can't be used again for a minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.service import Service
from tests.faults.cloud.things import Json

_DELETED_FOR = timedelta(seconds=60)


@dataclass
class Queue:
    name: str
    url: str
    arn: str
    attributes: dict[str, str]
    tags: dict[str, str]
    messages: list[Json] = field(default_factory=list)
    sent: int = 0

    def send(self, body: str, attributes: Mapping[str, str]) -> str:
        self.sent += 1
        typed = {
            name: {"DataType": "String", "StringValue": value}
            for name, value in attributes.items()
        }
        message_id = f"{self.name}-{self.sent}"
        message: Json = {"MessageId": message_id, "ReceiptHandle": message_id, "Body": body}
        if typed:
            message["MessageAttributes"] = typed
        self.messages.append(message)
        return message_id


class Sqs(Service):
    def create_queue(
        self,
        *,
        QueueName: str,
        Attributes: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Json:
        wanted, queues = dict(Attributes or {}), self._region.queues
        present = queues.get(QueueName)
        if present is not None:
            if any(present.attributes.get(name) != wanted[name] for name in wanted):
                raise Refused("QueueAlreadyExists", f"A queue {QueueName} already exists")
            return {"QueueUrl": present.url}
        deleted = self._region.queues_deleted.get(QueueName)
        if deleted and self._account.timeline.time() < deleted + _DELETED_FOR:
            raise Refused(
                "AWS.SimpleQueueService.QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another "
                "with the same name.",
            )
        place, account = self._region.name, self._account.id
        queues[QueueName] = Queue(
            name=QueueName,
            url=self._url(QueueName),
            arn=f"arn:aws:sqs:{place}:{account}:{QueueName}",
            attributes=wanted,
            tags=dict(tags or {}),
        )
        return {"QueueUrl": queues[QueueName].url}

    def get_queue_url(self, *, QueueName: str) -> Json:
        return {"QueueUrl": self._named(QueueName).url}

    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: Sequence[str] = ()) -> Json:
        queue = self._at(QueueUrl)
        found = queue.attributes | {
            "QueueArn": queue.arn,
            "ApproximateNumberOfMessages": str(len(queue.messages)),
        }
        wanted = found if "All" in AttributeNames else AttributeNames
        return {"Attributes": {name: found[name] for name in wanted if name in found}}

    def set_queue_attributes(self, *, QueueUrl: str, Attributes: Mapping[str, str]) -> Json:
        self._at(QueueUrl).attributes |= dict(Attributes)
        return {}

    def list_queues(self, *, QueueNamePrefix: str = "", MaxResults: int = 1000) -> Json:
        names = [*self._region.queues, *self._ghosts()]
        found = {self._url(name) for name in names if name.startswith(QueueNamePrefix)}
        return {"QueueUrls": sorted(found)} if found else {}

    def list_queue_tags(self, *, QueueUrl: str) -> Json:
        tags = self._at(QueueUrl).tags
        return {"Tags": dict(tags)} if tags else {}

    def tag_queue(self, *, QueueUrl: str, Tags: Mapping[str, str]) -> Json:
        self._at(QueueUrl).tags |= dict(Tags)
        return {}

    def send_message(
        self, *, QueueUrl: str, MessageBody: str, MessageAttributes: Any = None
    ) -> Json:
        values = {name: each["StringValue"] for name, each in (MessageAttributes or {}).items()}
        return {"MessageId": self._at(QueueUrl).send(MessageBody, values)}

    def receive_message(
        self,
        *,
        QueueUrl: str,
        MaxNumberOfMessages: int = 1,
        WaitTimeSeconds: int = 0,
        VisibilityTimeout: int = 30,
        MessageAttributeNames: Sequence[str] = (),
        AttributeNames: Sequence[str] = (),
        MessageSystemAttributeNames: Sequence[str] = (),
    ) -> Json:
        """What is received can be received again at once: visibility isn't modelled."""
        found = self._at(QueueUrl).messages[:MaxNumberOfMessages]
        kept = found if MessageAttributeNames else [_plain(message) for message in found]
        return {"Messages": kept} if kept else {}

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> Json:
        queue = self._at(QueueUrl)
        queue.messages = [m for m in queue.messages if m["ReceiptHandle"] != ReceiptHandle]
        return {}

    def purge_queue(self, *, QueueUrl: str) -> Json:
        self._at(QueueUrl).messages.clear()
        return {}

    def delete_queue(self, *, QueueUrl: str) -> Json:
        queue = self._at(QueueUrl)
        del self._region.queues[queue.name]
        self._region.queues_deleted[queue.name] = self._account.timeline.time()
        return {}

    def _ghosts(self) -> list[str]:
        """Names of deleted queues that are still listed."""
        since = self._account.timeline.ago(self._rules.queue_linger_s)
        return [name for name, at in self._region.queues_deleted.items() if at > since]

    def _url(self, name: str) -> str:
        return f"https://sqs.{self._region.name}.amazonaws.com/{self._account.id}/{name}"

    def _at(self, url: str) -> Queue:
        return self._named(url.rpartition("/")[2])

    def _named(self, name: str) -> Queue:
        queue = self._region.queues.get(name)
        if queue is None:
            raise Refused(
                "AWS.SimpleQueueService.NonExistentQueue",
                "The specified queue does not exist.",
            )
        return queue


def _plain(message: Json) -> Json:
    return {name: value for name, value in message.items() if name != "MessageAttributes"}
