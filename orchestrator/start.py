"""From a plan to a run on record: checks, keys, payload, run.json. Nothing bills by the hour."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import httpx

from orchestrator import run
from orchestrator.aws.bucket import ensure_bucket
from orchestrator.aws.images import resolve_ami
from orchestrator.aws.quotas import vcpu_use
from orchestrator.aws.secrets import check_secrets, lend_secrets
from orchestrator.aws.skew import check_clock
from orchestrator.aws.tags import RunTags
from orchestrator.errors import ApiError, QuotaError
from orchestrator.payload import build_payload
from orchestrator.plan import Plan, replan_deadlines
from orchestrator.remote import new_key_pair
from orchestrator.render import POWEROFF, POWEROFF_BY_VARIABLE
from orchestrator.settings import Settings, variable

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.aws.bucket import Bucket
    from orchestrator.aws.session import Session
    from orchestrator.budget_log import BudgetLog
    from orchestrator.clock import Clock

# AWS's own service that answers with the caller's public address.
_CALLER_ADDRESS = "https://checkip.amazonaws.com"
_ID_TRIES = 5


def start_run(
    session: Session,
    plan: Plan,
    clock: Clock,
    *,
    boxes_are_processes: bool,
    budget: BudgetLog | None = None,
) -> tuple[Bucket, run.RunRecord]:
    """Put a run on record, ready for `Runner.drive`.

    Raises:
        ClockWrong: this machine's clock is more than a minute off.
        SecretError: a secret can't be read, as far as that can be known here.
        OverCap: the plan doesn't fit into what is free in the budget.
        QuotaError: the account's vCPU quota is smaller than the plan needs now.
        BucketError: the results bucket isn't ours.
        CatalogError: the AMI parameter doesn't exist in the region.
    """
    check_clock(session, clock.now)
    check_secrets(session, plan.secrets, variable)
    if budget:
        budget.check(plan.name, plan.reservations(), clock.now())
    check_quota(session, plan)
    ami = resolve_ami(session, plan.ami_parameter)
    bucket = ensure_bucket(session)
    now = clock.now()
    plan = replan_deadlines(plan, now).model_copy(update={"ami_id": ami.id})
    run_id = _free_run_id(bucket, plan.name, now)
    user, host = new_key_pair(f"gpurun-{run_id}"), new_key_pair(f"gpurun-{run_id}-host")
    payload = build_payload(plan, run_id, bucket.name, host_private=host.private)
    bucket.put_file(f"runs/{run_id}/payload/{payload.sha256}.tar.gz", payload.path)
    secrets = run.SshSecrets(
        user_private=user.private,
        user_public=user.public,
        host_private=host.private,
        host_public=host.public,
    )
    run.write_ssh_secrets(bucket, run_id, secrets)
    record = run.RunRecord(
        run_id=run_id,
        owner=f"{Settings().owner}@{socket.gethostname()}",
        created_at=now,
        plan=plan,
        bucket=bucket.name,
        root_device=ami.root_device,
        root_snapshot_gb=ami.snapshot_gb,
        payload_sha256=payload.sha256,
        ssh_cidr=caller_cidr(plan.cloud),
        ssh_host_key=host.public,
        poweroff_command=POWEROFF_BY_VARIABLE if boxes_are_processes else POWEROFF,
        budget=budget.name if budget else None,
        budget_region=budget.region if budget else None,
    )
    tags = RunTags(run_id, record.owner, record.expires_at, bucket.name)
    lend_secrets(session, tags, plan.secrets, variable)
    _put_on_record(bucket, record)
    return bucket, record


def _free_run_id(bucket: Bucket, name: str, now: datetime) -> str:
    """An id that no run of this bucket has: a second run under it would share its tags."""
    for _ in range(_ID_TRIES):
        run_id = run.new_run_id(name, now)
        if bucket.head(f"runs/{run_id}/run.json") is None:
            return run_id
    raise _taken(run_id)


def _put_on_record(bucket: Bucket, record: run.RunRecord) -> None:
    if not run.write_record(bucket, record):
        raise _taken(record.run_id)


def _taken(run_id: str) -> ApiError:
    return ApiError(
        f"Another run is on record as {run_id}.",
        hint="Nothing was launched; type the command again.",
    )


def check_quota(session: Session, plan: Plan) -> None:
    """Compare the vCPUs the plan needs at once with what the account may still start.

    Raises:
        QuotaError: names the quota's code, what is needed and what there is.
    """
    for code, vcpus in plan.quotas.items():
        use = vcpu_use(session, code)
        if use is not None and use.limit - use.used < vcpus:
            raise QuotaError(
                f"The plan needs {vcpus} vCPUs in {session.region}; quota {code} allows "
                f"{use.limit}, of which {use.used} are in use.",
                hint=f"Ask AWS for more (Service Quotas, EC2, {code}), or use a smaller instance.",
            )


def caller_cidr(cloud: str) -> str | None:
    """The caller's own address as a /32; None (no SSH at all) when it can't be found out."""
    if cloud == "local":
        return "127.0.0.1/32"
    try:
        answer = httpx.get(_CALLER_ADDRESS, timeout=5).raise_for_status()
    except httpx.HTTPError:
        return None
    return f"{answer.text.strip()}/32"
