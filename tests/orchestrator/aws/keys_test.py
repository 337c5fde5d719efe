"""The run's SSH key: imported once, tagged, replaced when it is another, gone with the run."""

from __future__ import annotations

from orchestrator.aws.keys import delete_key_pair, ensure_key_pair
from orchestrator.aws.session import Session
from orchestrator.aws.tags import RunTags, as_map
from tests.fake_clock import FakeClock

from .account import KEY, OTHER_RUN, RUN, tags_of

ANOTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl demo"


def pairs(session: Session) -> dict[str, str]:
    found = session.client("ec2").describe_key_pairs(IncludePublicKey=True)["KeyPairs"]
    return {pair["KeyName"]: pair["PublicKey"].split()[1] for pair in found}


def test_a_key_is_imported_once_with_its_tags(session: Session, tags: RunTags) -> None:
    for _ in range(2):
        assert ensure_key_pair(session, tags, KEY) == f"gpurun-{RUN}"
    (pair,) = session.client("ec2").describe_key_pairs()["KeyPairs"]
    assert as_map(pair["Tags"])["gpurun:run"] == RUN


def test_another_key_replaces_the_first(session: Session, tags: RunTags) -> None:
    ensure_key_pair(session, tags, KEY)
    ensure_key_pair(session, tags, ANOTHER)
    assert pairs(session) == {f"gpurun-{RUN}": ANOTHER.split()[1]}


def test_one_runs_key_is_deleted_and_no_other(
    session: Session, tags: RunTags, clock: FakeClock
) -> None:
    ensure_key_pair(session, tags, KEY)
    ensure_key_pair(session, tags_of(OTHER_RUN, session, clock), KEY)
    for _ in range(2):
        delete_key_pair(session, RUN)
    assert list(pairs(session)) == [f"gpurun-{OTHER_RUN}"]
