"""ubicloud#5898, rust-lang/bors#830, boto/boto3#4406: a ClientToken that was used before.

There: a token is made from too little. A retry with another type is refused as a mismatch, or gets
the instance of a launch that ended long ago, and no machine ever comes.
Here: the token is made of run, box, attempt, zone and type, so that another one of these is
another token. Used with other parameters all the same, it leads to the instance that it made, of
which there is one; used after that has ended, it asks for the next attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from orchestrator.aws.boxes import BoxRecord, client_token, find_boxes, run_request, terminate
from orchestrator.aws.refusals import code
from orchestrator.errors import LaunchError
from tests.faults.cloud.building import BuiltRun, build_run
from tests.faults.cloud.kit import OTHER_RUN, RUN, ZONES, TestAccount, open_account

TYPES = ("g6.xlarge", "g6.2xlarge")


@pytest.fixture(params=["model", "moto"])
def account(request: pytest.FixtureRequest) -> Iterator[TestAccount]:
    with open_account(request.param) as one:
        yield one


@pytest.fixture
def run(account: TestAccount) -> BuiltRun:
    return build_run(account.session, account.tags(), ZONES)


def answer(account: TestAccount, run: BuiltRun, zone: str, kind: str, **changes: Any) -> str:
    """The instance that the request makes, or the code by which it is refused."""
    asked = run_request(run.request(**changes), run.net, kind, zone)
    try:
        made: str = account.ec2.run_instances(**asked)["Instances"][0]["InstanceId"]
    except Exception as error:
        return code(error)
    return made


def test_another_run_box_attempt_zone_or_type_is_another_token(
    account: TestAccount, run: BuiltRun
) -> None:
    runs = account.tags(), account.tags(OTHER_RUN)
    tokens = {
        client_token(run.request(box, attempt=attempt, tags=tags), kind, zone)
        for tags, box, attempt, zone, kind in product(runs, ("l4", "l40s"), (1, 2), ZONES, TYPES)
    }
    assert len(tokens) == 2 * 2 * 2 * len(ZONES) * len(TYPES)


def test_a_retry_with_another_type_is_a_launch_of_its_own(
    account: TestAccount, run: BuiltRun
) -> None:
    first = answer(account, run, ZONES[0], TYPES[0])
    second = answer(account, run, ZONES[0], TYPES[1])
    assert first.startswith("i-")
    assert second.startswith("i-")
    assert first != second
    assert answer(account, run, ZONES[0], TYPES[0]) == first


def test_a_token_that_was_used_with_other_words_leads_to_what_it_made(
    account: TestAccount, run: BuiltRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run.launch()
    said = answer(account, run, first.zone, TYPES[0], user_data="#!/bin/sh\n")
    assert said == "IdempotentParameterMismatch"
    # Reads are late, so that the launch goes as far as the refusal.
    seen: Iterator[list[BoxRecord]] = iter([[], [], []])
    monkeypatch.setattr(
        "orchestrator.aws.boxes.find_boxes", lambda *of: next(seen, find_boxes(*of))
    )
    assert run.launch(user_data="#!/bin/sh\n").instance_id == first.instance_id
    assert len(find_boxes(account.session, RUN)) == 1


def test_a_token_whose_instance_has_ended_asks_for_the_next_attempt(
    account: TestAccount, run: BuiltRun
) -> None:
    first = run.launch()
    terminate(account.session, [first.instance_id])
    account.pass_time(120)
    assert answer(account, run, first.zone, TYPES[0]) == "IdempotentInstanceTerminated"
    with pytest.raises(LaunchError) as told:
        run.launch()
    assert told.value.used_up
    assert run.launch(attempt=2).instance_id != first.instance_id
