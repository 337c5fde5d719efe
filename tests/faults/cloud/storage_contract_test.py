"""What S3 says: whose a bucket is, who may write, what is listed; and other stores of values."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from boto3.exceptions import S3UploadFailedError

from tests.faults.cloud.kit import RUN, TestAccount, nowhere, refusal, refused

SOMEBODY = "222222222222"


@pytest.fixture
def bucket(account: TestAccount) -> Iterator[str]:
    """A bucket of the test's own, versioned as ours are."""
    name = f"gpurun-contract-{account.session.account}"
    here = account.session.region
    place: Any = {"CreateBucketConfiguration": {"LocationConstraint": here}}
    account.s3.create_bucket(Bucket=name, **(place if here != "us-east-1" else {}))
    account.s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    yield name
    if account.name == "aws":
        empty(account, name)
        account.s3.delete_bucket(Bucket=name)


def empty(account: TestAccount, bucket: str) -> None:
    for page in account.s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for row in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
            key = {"Key": row["Key"], "VersionId": row["VersionId"]}
            account.s3.delete_object(Bucket=bucket, **key)


def keys(answer: Any) -> list[str]:
    return [entry["Key"] for entry in answer.get("Contents", [])]


def test_one_writer_of_a_new_object_wins(account: TestAccount, bucket: str) -> None:
    asked = {"Bucket": bucket, "Key": "a", "IfNoneMatch": "*"}
    account.s3.put_object(**asked, Body=b"first")
    error = refused(account.s3.put_object, **asked, Body=b"second")
    assert error.response["Error"]["Code"] == "PreconditionFailed"
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert account.s3.get_object(Bucket=bucket, Key="a")["Body"].read() == b"first"


def test_an_object_is_replaced_by_whoever_knows_it(account: TestAccount, bucket: str) -> None:
    s3, key = account.s3, {"Bucket": bucket, "Key": "a"}
    first = s3.put_object(**key, Body=b"one")["ETag"]
    second = s3.put_object(**key, Body=b"two", IfMatch=first)["ETag"]
    assert refusal(s3.put_object, **key, Body=b"x", IfMatch=first) == "PreconditionFailed"
    found = s3.get_object(**key)
    assert (found["Body"].read(), found["ETag"]) == (b"two", second)
    none = {"Bucket": bucket, "Key": "none", "Body": b"x", "IfMatch": first}
    assert refusal(s3.put_object, **none) in ("NoSuchKey", "PreconditionFailed")


def test_a_missing_object_is_told_by_code_or_by_status(account: TestAccount, bucket: str) -> None:
    key = {"Bucket": bucket, "Key": "none"}
    assert refusal(account.s3.get_object, **key) == "NoSuchKey"
    error = refused(account.s3.head_object, **key)
    assert error.response["Error"]["Code"] == "404"
    nowhere_ = {"Bucket": f"{bucket}-none", "Key": "a"}
    assert refusal(account.s3.get_object, **nowhere_) == "NoSuchBucket"
    assert refusal(account.s3.head_bucket, Bucket=f"{bucket}-none") == "404"


def test_an_object_is_read_from_where_one_stopped(account: TestAccount, bucket: str) -> None:
    s3, key = account.s3, {"Bucket": bucket, "Key": "log"}
    s3.put_object(**key, Body=b"0123456789")
    assert s3.head_object(**key)["ContentLength"] == 10
    tail = s3.get_object(**key, Range="bytes=4-")
    assert b"".join(tail["Body"].iter_chunks(3)) == b"456789"
    error = refused(s3.get_object, **key, Range="bytes=10-")
    assert error.response["Error"]["Code"] in ("InvalidRange", "416")
    body = s3.get_object(**key)["Body"]
    assert (body.read(4), body.read(), body.read()) == (b"0123", b"456789", b"")
    body.close()


def test_keys_are_listed_by_prefix_in_order_and_by_folder(
    account: TestAccount, bucket: str
) -> None:
    s3 = account.s3
    for key in ("runs/b/2", "runs/a/1", "runs/a/2", "control/a", "runs/ab"):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="runs/a/")
    assert keys(listed) == ["runs/a/1", "runs/a/2"]
    assert [entry["Size"] for entry in listed["Contents"]] == [8, 8]
    folders = s3.list_objects_v2(Bucket=bucket, Prefix="runs/", Delimiter="/")
    assert [each["Prefix"] for each in folders["CommonPrefixes"]] == ["runs/a/", "runs/b/"]
    assert keys(folders) == ["runs/ab"]
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket, Prefix="none/")


def test_a_long_list_comes_in_pages(account: TestAccount, bucket: str) -> None:
    for number in range(5):
        account.s3.put_object(Bucket=bucket, Key=f"k/{number}", Body=b"")
    first = account.s3.list_objects_v2(Bucket=bucket, Prefix="k/", MaxKeys=2)
    assert (keys(first), first["IsTruncated"]) == (["k/0", "k/1"], True)
    pages = account.s3.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix="k/", MaxKeys=2
    )
    assert [key for page in pages for key in keys(page)] == [f"k/{n}" for n in range(5)]


def test_what_is_overwritten_or_deleted_stays_as_a_version(
    account: TestAccount, bucket: str
) -> None:
    s3, key = account.s3, {"Bucket": bucket, "Key": "a"}
    s3.put_object(**key, Body=b"one")
    s3.put_object(**key, Body=b"two")
    s3.delete_object(**key)
    assert refusal(s3.get_object, **key) == "NoSuchKey"
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
    found = s3.list_object_versions(Bucket=bucket, Prefix="a")
    assert len(found["Versions"]) == 2
    assert len(found["DeleteMarkers"]) == 1
    old = {
        s3.get_object(**key, VersionId=v["VersionId"])["Body"].read() for v in found["Versions"]
    }
    assert old == {b"one", b"two"}


def test_an_object_in_parts_appears_whole_or_not_at_all(account: TestAccount, bucket: str) -> None:
    s3, key = account.s3, {"Bucket": bucket, "Key": "big"}
    upload = {**key, "UploadId": s3.create_multipart_upload(**key)["UploadId"]}
    blocks = [b"a" * (5 << 20), b"b"]
    parts = [
        {"PartNumber": n, "ETag": s3.upload_part(**upload, PartNumber=n, Body=block)["ETag"]}
        for n, block in enumerate(blocks, 1)
    ]
    assert refusal(s3.get_object, **key) == "NoSuchKey"
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    found = s3.get_object(**key)
    assert found["Body"].read() == b"".join(blocks)
    assert found["ETag"].endswith('-2"')
    assert refusal(s3.abort_multipart_upload, **upload) == "NoSuchUpload"


def test_an_upload_that_is_given_up_leaves_nothing(account: TestAccount, bucket: str) -> None:
    s3, key = account.s3, {"Bucket": bucket, "Key": "big"}
    upload = {**key, "UploadId": s3.create_multipart_upload(**key)["UploadId"]}
    s3.upload_part(**upload, PartNumber=1, Body=b"a")
    (open_one,) = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert open_one["Key"] == "big"
    s3.abort_multipart_upload(**upload)
    assert not s3.list_multipart_uploads(Bucket=bucket).get("Uploads")
    assert refusal(s3.abort_multipart_upload, **upload) == "NoSuchUpload"


def test_a_small_part_in_the_middle_is_refused(account: TestAccount, bucket: str) -> None:
    s3, key = account.s3, {"Bucket": bucket, "Key": "big"}
    upload = {**key, "UploadId": s3.create_multipart_upload(**key)["UploadId"]}
    parts = [
        {"PartNumber": n, "ETag": s3.upload_part(**upload, PartNumber=n, Body=b"x")["ETag"]}
        for n in (1, 2)
    ]
    whole = {**upload, "MultipartUpload": {"Parts": parts}}
    assert refusal(s3.complete_multipart_upload, **whole) == "EntityTooSmall"


def test_bytes_that_are_not_what_their_sum_says_are_refused(
    account: TestAccount, bucket: str
) -> None:
    if account.name == "moto":
        pytest.skip("moto believes any checksum")
    right = base64.b64encode(hashlib.sha256(b"data").digest()).decode()
    key = {"Bucket": bucket, "Key": "a"}
    account.s3.put_object(**key, Body=b"data", ChecksumSHA256=right)
    wrong = {**key, "Body": b"other", "ChecksumSHA256": right}
    assert refusal(account.s3.put_object, **wrong) == "BadDigest"


def test_a_bucket_of_somebody_else_is_not_ours(account: TestAccount, bucket: str) -> None:
    if account.name == "aws":
        pytest.skip("nobody else's bucket is at hand")
    theirs = "gpurun-theirs"
    if account.cloud:
        account.cloud.add_bucket(theirs, owner=SOMEBODY)
    else:
        somebodys("s3").create_bucket(Bucket=theirs)
    again = {"Bucket": theirs}
    assert refusal(account.s3.create_bucket, **again) == "BucketAlreadyExists"
    names = [each["Name"] for each in account.s3.list_buckets()["Buckets"]]
    assert (bucket in names, theirs in names) == (True, False)


def test_a_call_that_names_another_owner_is_refused(account: TestAccount, bucket: str) -> None:
    if account.name == "moto":
        pytest.skip("moto doesn't look at the expected owner")
    asked = {"Bucket": bucket, "ExpectedBucketOwner": SOMEBODY}
    assert refusal(account.s3.put_object, **asked, Key="a", Body=b"") == "AccessDenied"
    assert refusal(account.s3.head_bucket, **asked) == "403"


def somebodys(service: str) -> Any:
    """A client of another account in moto's cloud."""
    theirs = (
        nowhere()
        .client("sts")
        .assume_role(RoleArn=f"arn:aws:iam::{SOMEBODY}:role/theirs", RoleSessionName="theirs")[
            "Credentials"
        ]
    )
    make: Any = nowhere().client
    return make(
        service,
        aws_access_key_id=theirs["AccessKeyId"],
        aws_secret_access_key=theirs["SecretAccessKey"],
        aws_session_token=theirs["SessionToken"],
    )


def test_a_bucket_goes_when_it_is_empty(account: TestAccount, bucket: str) -> None:
    account.s3.put_object(Bucket=bucket, Key="a", Body=b"")
    assert refusal(account.s3.delete_bucket, Bucket=bucket) == "BucketNotEmpty"
    empty(account, bucket)
    if account.name != "aws":
        account.s3.delete_bucket(Bucket=bucket)
        assert refusal(account.s3.head_bucket, Bucket=bucket) == "404"


def test_a_file_goes_up_whole(account: TestAccount, bucket: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"data")
    account.s3.upload_file(str(path), bucket, "a")
    assert account.s3.get_object(Bucket=bucket, Key="a")["Body"].read() == b"data"
    with pytest.raises(S3UploadFailedError) as caught:
        account.s3.upload_file(str(path), f"{bucket}-none", "a")
    assert caught.value.__context__.response["Error"]["Code"] == "NoSuchBucket"  # type: ignore[union-attr]


def test_a_parameter_is_kept_changed_and_gone(account: TestAccount) -> None:
    ssm, name = account.ssm, f"/gpurun/{RUN}/token"
    tags = [{"Key": "gpurun:run", "Value": RUN}]
    asked = {"Name": name, "Value": "one", "Type": "SecureString"}
    ssm.put_parameter(**asked, Tags=tags)
    assert refusal(ssm.put_parameter, **asked) == "ParameterAlreadyExists"
    ssm.put_parameter(**(asked | {"Value": "two"}), Overwrite=True)
    found = ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]
    assert (found["Value"], found["Type"], found["Version"]) == ("two", "SecureString", 2)
    assert ssm.get_parameter(Name=name)["Parameter"]["Value"] != "two"
    seen = ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=name)
    assert seen["TagList"] == tags
    by_path = ssm.get_parameters_by_path(Path="/gpurun", Recursive=True)["Parameters"]
    assert [each["Name"] for each in by_path] == [name]
    begins = [{"Key": "Name", "Option": "BeginsWith", "Values": ["/gpurun/"]}]
    pages = ssm.get_paginator("describe_parameters").paginate(ParameterFilters=begins)
    assert [each["Name"] for page in pages for each in page["Parameters"]] == [name]
    ssm.delete_parameter(Name=name)
    for operation in ("get_parameter", "delete_parameter"):
        assert refusal(getattr(ssm, operation), Name=name) == "ParameterNotFound"
    reserved = {"Name": "/aws/x", "Value": "x", "Type": "String"}
    assert refusal(ssm.put_parameter, **reserved) == "AccessDeniedException"


def test_a_secret_is_read_by_name_or_arn(account: TestAccount) -> None:
    secrets, name = account.secrets, f"gpurun-{RUN}-token"
    assert refusal(secrets.get_secret_value, SecretId=name) == "ResourceNotFoundException"
    made = secrets.create_secret(Name=name, SecretString="hush")
    for key in (name, made["ARN"]):
        assert secrets.get_secret_value(SecretId=key)["SecretString"] == "hush"
        assert secrets.describe_secret(SecretId=key)["ARN"] == made["ARN"]
    secrets.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
    assert refusal(secrets.get_secret_value, SecretId=name) == "ResourceNotFoundException"
