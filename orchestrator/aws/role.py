"""Two roles of a run: what a box may do (its own prefix, no deleting), and who may end it.

The second serves the scheduler and the automation that a guard starts: a role of its own for the
latter could do no less, as it is that which ends instances.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.aws.refusals import boundary, code, is_missing, missing_is_fine
from orchestrator.aws.removal import all_of, remove
from orchestrator.aws.role_policies import (
    BOX,
    KILL,
    PATH,
    Document,
    box_policy,
    box_trust,
    kill_policy,
    kill_role_arn,
    kill_trust,
)
from orchestrator.aws.tags import RunTags, named
from orchestrator.aws.waits import PROPAGATION_S

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

_POLICY = "gpurun"


@boundary()
def ensure_box_role(
    session: Session, tags: RunTags, bucket: str, secrets: Iterable[str] = ()
) -> str:
    """Role and instance profile of the run's boxes; the profile's name is returned.

    `secrets`: where those of the jobs are kept, as `ssm:/path` or `secretsmanager:name`.
    """
    iam, name = session.client("iam"), named(tags.run_id, BOX)
    policy = box_policy(session, tags.run_id, bucket, secrets)
    _ensure_role(session, name, tags, box_trust(), policy)
    _unless_exists(
        lambda: iam.create_instance_profile(
            InstanceProfileName=name, Path=PATH, Tags=tags.as_list("box-profile", name)
        )
    )
    profile = session.patience.retry(
        lambda: iam.get_instance_profile(InstanceProfileName=name),
        when=is_missing,
        timeout_s=PROPAGATION_S,
    )["InstanceProfile"]
    if not profile["Roles"]:
        _unless_exists(
            lambda: iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name),
            or_="LimitExceeded",  # a profile holds one role, and ours is in it by now
        )
    return name


@boundary()
def ensure_kill_role(session: Session, tags: RunTags) -> str:
    """The role under which the scheduler, and SSM for it, end this run's boxes; its ARN."""
    name = named(tags.run_id, KILL)
    _ensure_role(session, name, tags, kill_trust(session), kill_policy(session, tags.run_id))
    return kill_role_arn(session, tags.run_id)


@boundary()
def delete_roles(session: Session, run_id: str) -> None:
    """Delete both roles and the profile, in the order that IAM asks for."""
    iam, box = session.client("iam"), named(run_id, BOX)
    for name in _roles_in_profile(session, box):
        remove(
            session, iam.remove_role_from_instance_profile, InstanceProfileName=box, RoleName=name
        )
    remove(session, iam.delete_instance_profile, InstanceProfileName=box)
    all_of(partial(_delete_role, session, name) for name in (box, named(run_id, KILL)))


def _delete_role(session: Session, name: str) -> None:
    iam = session.client("iam")
    remove(session, iam.delete_role_policy, RoleName=name, PolicyName=_POLICY)
    remove(session, iam.delete_role, RoleName=name)


def ensure_trust(session: Session, name: str, trust: Document) -> None:
    """Let those take a role who shall, whoever might take one that was made before."""
    iam = session.client("iam")
    found: Any = session.patience.retry(
        lambda: iam.get_role(RoleName=name), when=is_missing, timeout_s=PROPAGATION_S
    )["Role"]
    if found.get("AssumeRolePolicyDocument") != trust:
        iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(trust))


def _ensure_role(
    session: Session, name: str, tags: RunTags, trust: Document, policy: Document
) -> None:
    iam, part = session.client("iam"), name.rpartition("-")[2]
    _unless_exists(
        lambda: iam.create_role(
            RoleName=name,
            Path=PATH,
            AssumeRolePolicyDocument=json.dumps(trust),
            Description=f"gpurun: {part} role of the run {tags.run_id}",
            Tags=tags.as_list(f"{part}-role", name),
        )
    )
    ensure_trust(session, name, trust)
    session.patience.retry(
        lambda: iam.put_role_policy(
            RoleName=name, PolicyName=_POLICY, PolicyDocument=json.dumps(policy)
        ),
        when=is_missing,
        timeout_s=PROPAGATION_S,
    )


def _roles_in_profile(session: Session, name: str) -> list[str]:
    with missing_is_fine():
        found = session.client("iam").get_instance_profile(InstanceProfileName=name)
        return [entry["RoleName"] for entry in found["InstanceProfile"]["Roles"]]
    return []


def _unless_exists(create: Callable[[], object], *, or_: str = "") -> None:
    try:
        create()
    except Exception as error:
        if code(error) not in ("EntityAlreadyExists", or_):
            raise
