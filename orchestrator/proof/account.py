"""What the account must offer before a box is launched; nothing here costs anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.aws import evidence
from orchestrator.aws.images import Ami, resolve_ami
from orchestrator.aws.quotas import vcpu_use
from orchestrator.errors import QuotaError
from orchestrator.proof.design import AMI_PARAMETER
from orchestrator.spec import AMI_PARAMETER as GPU_AMI_PARAMETER

if TYPE_CHECKING:
    from orchestrator.aws.bucket import Bucket
    from orchestrator.aws.session import Session
    from orchestrator.plan import Plan
    from orchestrator.proof.checks import Checks


def check_account(session: Session, plan: Plan, checks: Checks) -> Ami:
    """Identity, images and quota; the boxes' image is returned.

    Raises:
        CatalogError: the region has no image for the boxes.
        QuotaError: the boxes don't fit beside what runs.
    """
    checks.record("credentials", ok=True, detail=f"account {session.account}, {session.region}")
    ami = resolve_ami(session, AMI_PARAMETER)
    checks.record("image of these boxes", ok=True, detail=f"{ami.id} {ami.name}")

    def gpu_image() -> None:
        found = resolve_ami(session, GPU_AMI_PARAMETER)
        checks.record("image of GPU boxes", ok=True, detail=f"{found.id} {found.name}")

    checks.guard("image of GPU boxes", gpu_image)
    _check_quota(session, plan, checks)
    return ami


def check_bucket(bucket: Bucket, checks: Checks) -> None:
    """Private, and closed to callers who expect it to be another's."""
    session, name = bucket.session, bucket.name

    def private() -> None:
        checks.record("bucket is private", evidence.is_private(session, name), name)

    def guarded() -> None:
        said = evidence.answer_to_another_owner(session, name)
        checks.record("bucket's owner is checked", said in ("AccessDenied", "403"), said)

    checks.guard("bucket is private", private)
    checks.guard("bucket's owner is checked", guarded)


def _check_quota(session: Session, plan: Plan, checks: Checks) -> None:
    for code, needed in plan.quotas.items():
        use = vcpu_use(session, code)
        if use is None:
            checks.skip("quota", f"{code} can't be read; RunInstances has the last word")
            continue
        words = f"{code}: {needed} vCPUs needed, {use.limit - use.used} of {use.limit} are free"
        if use.limit - use.used < needed:
            raise QuotaError(
                f"The proof's boxes don't fit: {words}.",
                hint="End what runs, ask AWS for more, or set AWS_REGION to another region.",
            )
        checks.record("quota", ok=True, detail=words)
