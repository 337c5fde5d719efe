"""Deleting: twice is once, absent is done, and what something holds is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from orchestrator.aws.refusals import is_in_use, missing_is_fine
from orchestrator.aws.waits import DEPENDENCY_S

if TYPE_CHECKING:
    from orchestrator.aws.session import Session


def remove(session: Session, delete: Callable[..., object], **what: str) -> None:
    """Call `delete(**what)` until nothing holds the thing any more, ten minutes at most.

    Raises:
        ClientError: EC2 or IAM refuses for another reason, or still after that time.
    """

    def once() -> None:
        with missing_is_fine():
            delete(**what)

    session.patience.retry(once, when=is_in_use, timeout_s=DEPENDENCY_S)


def all_of(steps: Iterable[Callable[[], None]]) -> None:
    """Take every step, also after one that fails; the first failure is raised at the end."""
    failures: list[Exception] = []
    for step in steps:
        try:
            step()
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]
