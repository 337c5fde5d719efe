"""The results bucket: private, versioned, ours, and honest about what was written by whom."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.aws.bucket import Bucket, ensure_bucket, find_run_bucket, result_buckets
from orchestrator.aws.session import Session
from orchestrator.errors import ApiError, BucketError, RunNotFound

from .account import RUN, other_account


@pytest.fixture
def bucket(session: Session) -> Bucket:
    return ensure_bucket(session)


def test_the_bucket_is_named_after_account_and_region(bucket: Bucket) -> None:
    assert bucket.name == "gpurun-123456789012-us-east-1"


def test_the_bucket_is_private_versioned_encrypted_and_cleans_up(bucket: Bucket) -> None:
    s3, name = bucket.session.client("s3"), bucket.name
    block = s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]
    assert all(block.values())
    assert len(block) == 4
    assert s3.get_bucket_versioning(Bucket=name)["Status"] == "Enabled"
    rule = s3.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    rules = s3.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    assert {"DaysAfterInitiation": 1} in [r.get("AbortIncompleteMultipartUpload") for r in rules]
    assert not any("Expiration" in rule for rule in rules)


def test_the_bucket_refuses_everybody_who_comes_without_tls(bucket: Bucket) -> None:
    policy = json.loads(
        bucket.session.client("s3").get_bucket_policy(Bucket=bucket.name)["Policy"]
    )
    (statement,) = policy["Statement"]
    assert statement["Effect"] == "Deny"
    assert statement["Principal"] == "*"
    assert statement["Action"] == "s3:*"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    arn = f"arn:aws:s3:::{bucket.name}"
    assert statement["Resource"] == [arn, f"{arn}/*"]


def test_a_second_call_keeps_the_bucket_and_what_is_in_it(bucket: Bucket) -> None:
    bucket.put("runs/a/run.json", b"{}")
    assert ensure_bucket(bucket.session) == bucket
    assert bucket.get("runs/a/run.json") == b"{}"


def test_a_bucket_of_another_region_says_where_it_is(session: Session) -> None:
    there = ensure_bucket(session.in_region("eu-central-1"))
    assert there.name.endswith("-eu-central-1")
    where = there.session.client("s3").get_bucket_location(Bucket=there.name)
    assert where["LocationConstraint"] == "eu-central-1"


def test_somebody_elses_bucket_is_refused_and_left_alone(session: Session) -> None:
    other_account("s3").create_bucket(Bucket="gpurun-123456789012-us-east-1")
    with pytest.raises(BucketError, match="doesn't belong to 123456789012"):
        ensure_bucket(session)
    with pytest.raises(Exception, match="NoSuchBucketPolicy"):
        other_account("s3").get_bucket_policy(Bucket="gpurun-123456789012-us-east-1")


def test_every_call_names_the_owner_that_the_bucket_must_have(
    bucket: Bucket, tmp_path: Path
) -> None:
    seen: list[tuple[str, Any]] = []

    def note(params: dict[str, Any], model: Any, **_: Any) -> None:
        seen.append((model.name, params.get("ExpectedBucketOwner")))

    events = bucket.session.client("s3").meta.events
    events.register("provide-client-params.s3", note)
    file = tmp_path / "file"
    file.write_bytes(b"x")
    ensure_bucket(bucket.session)
    bucket.put_file("k", file)
    bucket.put("j", b"y", if_absent=True)
    _ = bucket.get("k"), bucket.head("k"), list(bucket.read_range("k", 0))
    _ = list(bucket.keys("")), list(bucket.folders(""))
    events.unregister("provide-client-params.s3", note)
    owners = {name: owner for name, owner in seen if name != "ListBuckets"}
    assert len(owners) >= 10
    assert set(owners.values()) == {"123456789012"}


def test_the_first_writer_of_a_key_wins(bucket: Bucket) -> None:
    assert bucket.put("events/000001.json", b"mine", if_absent=True)
    assert not bucket.put("events/000001.json", b"theirs", if_absent=True)
    assert bucket.get("events/000001.json") == b"mine"


def test_a_write_whose_answer_got_lost_counts_as_written(bucket: Bucket) -> None:
    bucket.put("COMPLETE", b"the same bytes", if_absent=True)
    assert bucket.put("COMPLETE", b"the same bytes", if_absent=True)


def test_an_absent_object_is_no_error(bucket: Bucket) -> None:
    assert bucket.get("nothing") is None
    assert bucket.head("nothing") is None


def test_a_range_goes_to_the_end_and_none_is_left_at_the_end(bucket: Bucket) -> None:
    bucket.put("k", b"0123456789")
    assert b"".join(bucket.read_range("k", 4)) == b"456789"
    assert list(bucket.read_range("k", 10)) == []


def test_a_file_larger_than_a_part_arrives_whole(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(range(256)) * 40_000)
    bucket.put_file("weights", file)
    assert bucket.head("weights") == 10_240_000
    assert b"".join(bucket.read_range("weights", 0)) == file.read_bytes()


def test_keys_and_folders_are_listed_by_name(bucket: Bucket) -> None:
    for key in ("runs/b/run.json", "runs/a/run.json", "runs/a/x/y", "control/a/ssh.json"):
        bucket.put(key, b"1")
    assert list(bucket.keys("runs/a/")) == [("runs/a/run.json", 1), ("runs/a/x/y", 1)]
    assert list(bucket.folders("runs/")) == ["a", "b"]


def test_a_run_is_found_by_its_id_in_any_region(session: Session) -> None:
    ensure_bucket(session)
    there = ensure_bucket(session.in_region("eu-central-1"))
    there.put(f"runs/{RUN}/run.json", b"{}")
    found = find_run_bucket(session, RUN)
    assert found.name == there.name
    assert found.session.region == "eu-central-1"


@pytest.mark.parametrize("name", ["us-east-1-logs", "backup", "eu-central"])
def test_a_person_s_bucket_with_a_name_like_ours_hides_no_run(
    bucket: Bucket, session: Session, name: str
) -> None:
    """As one for the access logs of ours: a region of that name answers nobody."""
    session.client("s3").create_bucket(Bucket=f"gpurun-{session.account}-{name}")
    assert [each.name for each in result_buckets(session)] == [bucket.name]


def test_a_region_out_of_order_hides_no_run_of_another(
    bucket: Bucket, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ensure_bucket(session.in_region("eu-central-1"))
    there.put(f"runs/{RUN}/run.json", b"{}")
    real = Bucket.head

    def head(asked: Bucket, key: str) -> int | None:
        if asked.name == bucket.name:
            raise ApiError("AWS doesn't answer")
        return real(asked, key)

    monkeypatch.setattr(Bucket, "head", head)
    assert find_run_bucket(session, RUN).name == there.name
    with pytest.raises(ApiError):  # it may be there
        find_run_bucket(session, "another-261129-190000-ab2c")


def test_a_run_that_no_bucket_holds_is_not_found(bucket: Bucket) -> None:
    bucket.put("runs/another-261129-190000-ab2c/run.json", b"{}")
    with pytest.raises(RunNotFound, match="123456789012"):
        find_run_bucket(bucket.session, RUN)


@pytest.mark.parametrize("wrong", ["../x", "*", "a/b", "", "UPPER", "$(reboot)", "a\nb"])
def test_what_can_not_be_a_run_id_is_not_looked_for(session: Session, wrong: str) -> None:
    with pytest.raises(RunNotFound, match="can't be a run's id"):
        find_run_bucket(session, wrong)


def test_a_refused_upload_is_an_error_of_ours(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    with pytest.raises(ApiError, match="NoSuchBucket"):
        Bucket(bucket.session, "gpurun-gone").put_file("k", file)


def test_a_bucket_answers_nobody_who_expects_another_owner(session: Session) -> None:
    bucket = ensure_bucket(session)
    mistaken = Bucket(replace(session, account="000000000000"), bucket.name)
    for act in (lambda: mistaken.put("runs/x/key", b""), lambda: list(mistaken.keys("runs/"))):
        with pytest.raises(ApiError, match="AccessDenied"):
            act()
