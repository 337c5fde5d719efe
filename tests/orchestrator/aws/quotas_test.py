"""vCPUs that may still be started; not knowing is an answer, and not an error."""

from __future__ import annotations

from decimal import Decimal

from orchestrator.aws.instances import terminate
from orchestrator.aws.quotas import QuotaUse, vcpu_use
from orchestrator.aws.session import Session
from orchestrator.localcloud.strict import StrictRules

from .account import Stack

G_AND_VT, SPOT = "L-DB2E81BA", "L-3819A6DF"


def test_limit_and_use_are_in_vcpus(stack: Stack, rules: StrictRules) -> None:
    rules.vcpu_limits[G_AND_VT] = 96
    assert vcpu_use(stack.session, G_AND_VT) == QuotaUse(limit=96, used=0)
    first = stack.launch("l4")
    stack.launch(
        "small", instance_types=("g6.xlarge",), price_by_type={"g6.xlarge": Decimal("0.8048")}
    )
    assert vcpu_use(stack.session, G_AND_VT) == QuotaUse(limit=96, used=16 + 4)
    terminate(stack.session, [first.instance_id])
    assert vcpu_use(stack.session, G_AND_VT) == QuotaUse(limit=96, used=4)


def test_spot_instances_count_to_a_quota_of_their_own(stack: Stack, rules: StrictRules) -> None:
    rules.vcpu_limits |= {G_AND_VT: 96, SPOT: 32}
    stack.launch("l4")
    stack.launch("taken-away", spot=True)
    stack.launch("too", spot=True)
    assert vcpu_use(stack.session, G_AND_VT) == QuotaUse(limit=96, used=16)
    assert vcpu_use(stack.session, SPOT) == QuotaUse(limit=32, used=32)


def test_other_families_do_not_count(stack: Stack) -> None:
    stack.launch(
        "cpu", instance_types=("m5.xlarge",), price_by_type={"m5.xlarge": Decimal("0.192")}
    )
    use = vcpu_use(stack.session, G_AND_VT)
    assert use is not None
    assert use.used == 0


def test_a_quota_that_the_service_does_not_know_is_unknown(session: Session) -> None:
    assert vcpu_use(session, "L-00000000") is None
