"""moto behind the rules that AWS enforces and moto doesn't.

A test that talks to moto in its own process uses `strict_aws`; the local cloud's process puts the
same rules in force once, with `enforce`. docs/localcloud.md lists every rule with its source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from moto import mock_aws

from orchestrator.localcloud.rules import (
    automation,
    buckets,
    ending,
    functions,
    identity,
    images,
    launching,
    network,
    queues,
    quotas,
    scheduling,
    times,
)
from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import StrictRules, system_now

__all__ = ["StrictRules", "enforce", "strict_aws", "strict_rules"]


def enforce(rules: StrictRules) -> Patches:
    """Put the rules in force in this process; `undo()` of the answer lifts them."""
    patches = Patches()
    images.install(patches)
    buckets.install(patches)
    identity.install(patches, rules)
    launching.install(patches, rules)
    ending.install(patches, rules)
    network.install(patches, rules)
    functions.install(patches, rules)
    queues.install(patches, rules)
    quotas.install(patches, rules)
    scheduling.install(patches, rules)
    automation.install(patches, rules)
    times.install(patches, rules)
    return patches


@contextmanager
def strict_rules(rules: StrictRules) -> Iterator[StrictRules]:
    """The rules in force inside a `with`, over moto as the caller started it."""
    patches = enforce(rules)
    try:
        yield rules
    finally:
        patches.undo()


@contextmanager
def strict_aws(
    rules: StrictRules | None = None, *, now: Callable[[], datetime] = system_now
) -> Iterator[StrictRules]:
    """A fresh moto in this process behind the rules; turn them on what is yielded."""
    with strict_rules(rules or StrictRules(now=now)) as in_force, mock_aws():
        yield in_force
