"""Secrets on the controller: checked before anything is made, lent to one run, taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.aws.role import ensure_box_role
from orchestrator.aws.secrets import check_secrets, delete_secrets, find_lent, lend_secrets
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers, teardown
from orchestrator.aws.sweep import sweep
from orchestrator.aws.tags import RunTags
from orchestrator.errors import SecretError
from orchestrator.localcloud import policy
from tests.fake_clock import FakeClock

from .account import ACCOUNT, OTHER_RUN, REGION, RUN, tags_of

VALUE = "hf_Canary0123456789"
SOURCES = {"HF_TOKEN": "env", "WANDB": "ssm:/team/wandb", "NPM": "secretsmanager:team/npm"}
HERE = {"HF_TOKEN": VALUE}
NAME = f"/gpurun/{RUN}/HF_TOKEN"


@pytest.fixture
def keepers(session: Session) -> Session:
    """An account that keeps what the sources name."""
    session.client("ssm").put_parameter(Name="/team/wandb", Value=VALUE, Type="SecureString")
    session.client("secretsmanager").create_secret(Name="team/npm", SecretString=VALUE)
    return session


def refusal(session: Session, sources: Mapping[str, str], here: Mapping[str, str]) -> SecretError:
    with pytest.raises(SecretError) as caught:
        check_secrets(session, sources, here.get)
    assert VALUE not in str(caught.value)
    assert caught.value.exit_code == 25
    return caught.value


def test_secrets_that_are_all_there_pass(keepers: Session) -> None:
    check_secrets(keepers, SOURCES, HERE.get)


@pytest.mark.parametrize("here", [{}, {"HF_TOKEN": ""}])
def test_a_variable_that_isnt_set_is_named_with_what_to_type(
    keepers: Session, here: dict[str, str]
) -> None:
    error = refusal(keepers, SOURCES, here)
    assert "HF_TOKEN" in error.message
    assert "export HF_TOKEN" in error.hint


@pytest.mark.parametrize("value", ["x" * 4097, "a\0b", "\udcff"])
def test_a_variable_that_ssm_cant_hold_is_refused(session: Session, value: str) -> None:
    error = refusal(session, {"HF_TOKEN": "env"}, {"HF_TOKEN": value})
    assert "Secrets Manager" in error.hint


@pytest.mark.parametrize("at", ["ssm:/team/none", "secretsmanager:team/none"])
def test_what_isnt_kept_where_the_runbook_says_is_named(keepers: Session, at: str) -> None:
    error = refusal(keepers, {"WANDB": at}, {})
    assert error.message.startswith(f"secrets.WANDB: there is no {at} in {REGION} of {ACCOUNT}")


def test_a_secret_that_is_being_deleted_is_refused(keepers: Session) -> None:
    keepers.client("secretsmanager").delete_secret(SecretId="team/npm", RecoveryWindowInDays=7)
    assert "restore-secret" in refusal(keepers, SOURCES, HERE).hint


def test_a_run_is_lent_this_machines_secrets_encrypted_tagged_and_no_others(
    keepers: Session, tags: RunTags
) -> None:
    for _ in range(2):
        lend_secrets(keepers, tags, SOURCES, HERE.get)
    ssm = keepers.client("ssm")
    (found,) = ssm.describe_parameters(
        ParameterFilters=[{"Key": "Path", "Option": "Recursive", "Values": ["/gpurun"]}]
    )["Parameters"]
    assert (found["Name"], found["Type"], found["Tier"]) == (NAME, "SecureString", "Standard")
    read = ssm.get_parameter(Name=NAME, WithDecryption=True)["Parameter"]["Value"]
    assert read == VALUE
    (lent,) = find_lent(keepers)
    assert (lent.name, lent.run, lent.expires_at) == (NAME, RUN, tags.expires_at)
    listed = ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=NAME)["TagList"]
    assert VALUE not in json.dumps(listed)
    assert {tag["Key"] for tag in listed} >= {"gpurun:run", "gpurun:expires-at", "gpurun:owner"}


def test_a_secret_that_changed_in_between_is_the_newer_one(
    session: Session, tags: RunTags
) -> None:
    lend_secrets(session, tags, {"HF_TOKEN": "env"}, {"HF_TOKEN": "old-old-old"}.get)
    lend_secrets(session, tags, {"HF_TOKEN": "env"}, HERE.get)
    ssm = session.client("ssm")
    assert ssm.get_parameter(Name=NAME, WithDecryption=True)["Parameter"]["Value"] == VALUE


def test_what_was_lent_is_left_over_until_the_teardown_takes_it_back(
    keepers: Session, tags: RunTags, clock: FakeClock
) -> None:
    lend_secrets(keepers, tags, SOURCES, HERE.get)
    (left,) = leftovers(keepers, RUN)
    assert (left.kind, left.id, left.run) == ("secret", NAME, RUN)
    assert VALUE not in repr(left)
    for _ in range(2):
        assert teardown(keepers, RUN, clock.now()) == []
    assert find_lent(keepers) == []
    check_secrets(keepers, SOURCES, HERE.get)  # a person's own are still there


def test_a_sweep_ends_what_was_lent_to_runs_that_are_over(
    session: Session, clock: FakeClock
) -> None:
    for run in (RUN, OTHER_RUN):
        lend_secrets(session, tags_of(run, session, clock), {"HF_TOKEN": "env"}, HERE.get)
    clock.at += timedelta(hours=4)
    swept = sweep(session, clock.now(), [REGION])
    assert set(swept.ended) == {RUN, OTHER_RUN}
    assert find_lent(session) == []


def test_one_run_is_taken_back_what_it_was_lent_and_no_other(
    session: Session, clock: FakeClock
) -> None:
    longer = f"{RUN}x"
    for run in (RUN, longer):
        lend_secrets(session, tags_of(run, session, clock), {"HF_TOKEN": "env"}, HERE.get)
    delete_secrets(session, RUN)
    assert [lent.run for lent in find_lent(session)] == [longer]


def box_document(session: Session, tags: RunTags, sources: list[str]) -> dict[str, Any]:
    name = ensure_box_role(session, tags, tags.bucket, sources)
    found = session.client("iam").get_role_policy(RoleName=name, PolicyName="gpurun")
    document: Any = found["PolicyDocument"]
    return dict(document)


def test_a_box_may_read_exactly_its_secrets_and_only_read(session: Session, tags: RunTags) -> None:
    sources = [f"ssm:{NAME}", "ssm:/team/wandb", "secretsmanager:team/npm"]
    document = box_document(session, tags, sources)
    ssm, manager = "arn:aws:ssm", "arn:aws:secretsmanager"
    where = f"{REGION}:{ACCOUNT}"

    def may(action: str, resource: str) -> bool:
        return policy.allows([document], action, resource, {})

    assert may("ssm:GetParameter", f"{ssm}:{where}:parameter{NAME}")
    assert may("ssm:GetParameter", f"{ssm}:{where}:parameter/team/wandb")
    assert may("secretsmanager:GetSecretValue", f"{manager}:{where}:secret:team/npm-a1B2c3")
    assert not may("ssm:GetParameter", f"{ssm}:{where}:parameter{NAME}2")
    assert not may("ssm:GetParameter", f"{ssm}:us-west-2:{ACCOUNT}:parameter/team/wandb")
    assert not may("ssm:PutParameter", f"{ssm}:{where}:parameter{NAME}")
    assert not may("ssm:DeleteParameter", f"{ssm}:{where}:parameter{NAME}")
    assert not may("secretsmanager:GetSecretValue", f"{manager}:{where}:secret:team/npm2-a1B2c3")


def test_a_box_of_a_run_without_secrets_may_read_none(session: Session, tags: RunTags) -> None:
    actions = [s["Action"] for s in box_document(session, tags, [])["Statement"]]
    assert "ssm" not in json.dumps(actions)
    assert "secretsmanager" not in json.dumps(actions)
