"""Kill schedules that failed for good: one queue a run, which is the only place that says so.

The scheduler hands over what it gives up on, if the schedule's role may write to the queue.
Reading takes nothing away: several commands may look, until the teardown deletes the queue.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.aws.refusals import boundary, code, is_missing, missing_is_fine
from orchestrator.aws.tags import GUARD_SUFFIX, PREFIX, RunTags, as_map, named
from orchestrator.aws.waits import PROPAGATION_S

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef

    from orchestrator.aws.session import Session

PART = "dead"
# The longest that SQS keeps a message: 14 days.
_KEPT_S = 14 * 86_400
# SQS takes up to a minute to delete a queue, and as long to give its name away again.
_DELETION_S = PROPAGATION_S + 15
_AT_ONCE = 10
_RECENTLY = "QueueDeletedRecently"
_OTHERWISE_MADE = ("QueueAlreadyExists", "QueueNameExists")


@dataclass(frozen=True)
class Letter:
    """One kill that the cloud has given up on."""

    box: str
    """The box, or its instance's id when the letter doesn't name the schedule."""
    reason: str


def queue_arn(session: Session, run_id: str) -> str:
    """What the run's queue is called in policies and schedules, whether it exists or not."""
    return f"arn:{session.partition}:sqs:{session.region}:{session.account}:{named(run_id, PART)}"


@boundary()
def ensure_queue(session: Session, tags: RunTags) -> str:
    """Make the run's queue, unless it is there; its ARN is returned."""
    name = named(tags.run_id, PART)

    def create() -> None:
        try:
            session.client("sqs").create_queue(
                QueueName=name,
                Attributes={"MessageRetentionPeriod": str(_KEPT_S)},
                tags=as_map(tags.as_list("dead-letters", name)),
            )
        except Exception as error:
            if not code(error).endswith(_OTHERWISE_MADE):
                raise

    session.patience.retry(
        create, when=lambda error: code(error).endswith(_RECENTLY), timeout_s=_DELETION_S
    )
    return queue_arn(session, tags.run_id)


@boundary()
def find_queues(session: Session, run_id: str | None = None) -> list[str]:
    """Names of the run's queue, or of all runs' in this region; a deleted one may still show."""
    wanted = named(run_id, PART) if run_id else ""
    pages = (
        session.client("sqs")
        .get_paginator("list_queues")
        .paginate(QueueNamePrefix=wanted or f"{PREFIX}-")
    )
    names = {url.rpartition("/")[2] for page in pages for url in page.get("QueueUrls", [])}
    return sorted(
        name for name in names if (name == wanted if wanted else name.endswith(f"-{PART}"))
    )


@boundary()
def tags_of(session: Session, name: str) -> dict[str, str] | None:
    """A queue's tags; None if it is gone."""
    url = _url(session, name)
    if url is None:
        return None
    with missing_is_fine():
        return session.client("sqs").list_queue_tags(QueueUrl=url).get("Tags", {})
    return None


@boundary()
def read_letters(session: Session, run_id: str) -> list[Letter]:
    """Ten kills at most that failed for good; they stay in the queue for others to read."""
    url = _url(session, named(run_id, PART))
    if url is None:
        return []
    found: list[MessageTypeDef] = []
    with missing_is_fine():
        if _held(session, url):
            found = (
                session.client("sqs")
                .receive_message(
                    QueueUrl=url,
                    MaxNumberOfMessages=_AT_ONCE,
                    VisibilityTimeout=0,
                    WaitTimeSeconds=1,
                    MessageAttributeNames=["All"],
                )
                .get("Messages", [])
            )
    return sorted({_letter(each, run_id) for each in found}, key=lambda letter: letter.box)


@boundary()
def delete_queue(session: Session, run_id: str) -> None:
    """Delete the run's queue with all that it holds; SQS takes up to a minute."""
    name = named(run_id, PART)
    url = _url(session, name)
    if url is None:
        return
    with missing_is_fine():
        session.client("sqs").delete_queue(QueueUrl=url)
    session.patience.until(
        lambda: True if _url(session, name) is None else None, timeout_s=_DELETION_S
    )


def _url(session: Session, name: str) -> str | None:
    try:
        return session.client("sqs").get_queue_url(QueueName=name)["QueueUrl"]
    except Exception as error:
        if not is_missing(error):
            raise
        return None


def _held(session: Session, url: str) -> int:
    """How many: a short read asks only some of SQS's servers and may come back empty."""
    found = session.client("sqs").get_queue_attributes(
        QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"]
    )
    return int(found["Attributes"]["ApproximateNumberOfMessages"])


def _letter(message: MessageTypeDef, run_id: str) -> Letter:
    said = {
        name: value.get("StringValue", "")
        for name, value in message.get("MessageAttributes", {}).items()
    }
    schedule = said.get("SCHEDULE_ARN", "").rpartition("/")[2]
    name = schedule.removeprefix(f"{named(run_id)}-") or _aimed_at(message)
    reason = said.get("ERROR_MESSAGE") or said.get("ERROR_CODE") or "no reason given"
    if name.endswith(GUARD_SUFFIX):
        return Letter(name.removesuffix(GUARD_SUFFIX), f"its guard: {reason}")
    return Letter(name, reason)


def _aimed_at(message: MessageTypeDef) -> str:
    """The ids that the schedule's own input names, or the box whose guard it is."""
    try:
        asked = json.loads(message["Body"])
        if "Targets" in asked:
            return f"{asked['Targets'][0]['Values'][0].rpartition('/')[2]}{GUARD_SUFFIX}"
        return ", ".join(str(each) for each in asked["InstanceIds"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return "a box"
