"""The results bucket: the only thing that outlives a run. Nothing here deletes an object.

Its name holds account and region, so any machine with the account's credentials finds a run
again by its id. Bucket names are global: somebody else may own ours, so calls name the owner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boto3.s3.transfer import TransferConfig

from orchestrator.aws.bucket_rules import apply_rules
from orchestrator.aws.refusals import Refusal, boundary, classify, code, is_missing
from orchestrator.aws.tags import PREFIX, checked
from orchestrator.aws.waits import PROPAGATION_S
from orchestrator.errors import ApiError, BucketError, RunNotFound

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

    from orchestrator.aws.session import Session

_CHUNK = 1024 * 1024
_TRANSFER = TransferConfig(max_concurrency=4)
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+")
_EXISTS = ("PreconditionFailed", "412")
_RACED = ("ConditionalRequestConflict", "OperationAborted", "409")


@dataclass(frozen=True)
class Bucket:
    """Objects by key. Every method raises CredentialsError, CloudError or ApiError."""

    session: Session
    """In the bucket's own region."""
    name: str

    @boundary()
    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write an object; with `if_absent`, False when there was another one already.

        Identical bytes count as written: a put whose answer was lost is sent again, and then finds
        itself. Where two writers must be told apart, put something of the writer's own in `data`.
        """
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if if_absent else {}
        try:
            self.session.patience.retry(
                lambda: self._s3.put_object(**self._at(key), Body=data, **condition),
                when=lambda error: code(error) in _RACED,
                timeout_s=PROPAGATION_S,
            )
        except Exception as error:
            if code(error) not in _EXISTS:
                raise
            return self.get(key) == data
        return True

    @boundary()
    def put_file(self, key: str, path: Path) -> None:
        """Upload a file, in parts when it is large."""
        self._s3.upload_file(
            str(path),
            self.name,
            key,
            ExtraArgs={"ExpectedBucketOwner": self.session.account},
            Config=_TRANSFER,
        )

    @boundary()
    def get(self, key: str) -> bytes | None:
        """The newest version's bytes; None if there is no such object."""
        try:
            return self._s3.get_object(**self._at(key))["Body"].read()
        except Exception as error:
            if not is_missing(error):
                raise
            return None

    @boundary()
    def head(self, key: str) -> int | None:
        """Size in bytes; None if there is no such object."""
        try:
            return self._s3.head_object(**self._at(key))["ContentLength"]
        except Exception as error:
            if not is_missing(error):
                raise
            return None

    def read_range(self, key: str, start: int) -> Iterator[bytes]:
        """Chunks from byte `start` to the end; none when the object ends there."""
        with boundary():
            try:
                body = self._s3.get_object(**self._at(key), Range=f"bytes={start}-")["Body"]
            except Exception as error:
                if code(error) in ("InvalidRange", "416"):
                    return
                raise
            yield from body.iter_chunks(_CHUNK)

    def keys(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Keys with their sizes in bytes, in the order of their names."""
        with boundary():
            for page in self._pages(prefix):
                for entry in page.get("Contents", []):
                    yield entry["Key"], entry["Size"]

    def versions(self, prefix: str) -> Iterator[tuple[str, int, bool]]:
        """Every version under `prefix`: its key, its bytes, and whether it is the newest."""
        with boundary():
            pages = self._s3.get_paginator("list_object_versions").paginate(
                Bucket=self.name, Prefix=prefix, ExpectedBucketOwner=self.session.account
            )
            for page in pages:
                for entry in page.get("Versions", []):
                    yield entry["Key"], entry["Size"], entry["IsLatest"]

    def folders(self, prefix: str) -> Iterator[str]:
        """The names directly under `prefix` that hold further keys (`runs/` gives run ids)."""
        with boundary():
            for page in self._pages(prefix, Delimiter="/"):
                for entry in page.get("CommonPrefixes", []):
                    yield entry["Prefix"].removeprefix(prefix).rstrip("/")

    @property
    def _s3(self) -> S3Client:
        return self.session.client("s3")

    def _at(self, key: str) -> dict[str, Any]:
        return {"Bucket": self.name, "Key": key, "ExpectedBucketOwner": self.session.account}

    def _pages(self, prefix: str, **more: Any) -> Any:
        return self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.name,
            Prefix=prefix,
            ExpectedBucketOwner=self.session.account,
            **more,
        )


@boundary()
def ensure_bucket(session: Session) -> Bucket:
    """Create the account's bucket of this region if need be, and set what it must have.

    Raises:
        BucketError: somebody else owns the name.
    """
    bucket = Bucket(session, f"{_account_prefix(session)}{session.region}")
    if not _is_ours(bucket):
        _create(bucket)
    session.patience.retry(
        lambda: apply_rules(session, bucket.name), when=_is_new, timeout_s=PROPAGATION_S
    )
    return bucket


@boundary()
def result_buckets(session: Session) -> list[Bucket]:
    """The account's results buckets, this session's region first."""
    prefix = _account_prefix(session)
    found = [name.removeprefix(prefix) for name in _own_names(session, prefix)]
    regions = [name for name in found if _REGION.fullmatch(name)]  # not a person's `…-1-logs`
    regions.sort(key=lambda region: (region != session.region, region))
    return [Bucket(session.in_region(region), f"{prefix}{region}") for region in regions]


def find_run_bucket(session: Session, run_id: str) -> Bucket:
    """Where a run is on record, in whichever region; `.session` of it is the run's session.

    Raises:
        RunNotFound: no bucket of this account holds the run.
        ApiError: none that can be read does, and one can't be.
    """
    key, unread = f"runs/{checked(run_id)}/run.json", list[ApiError]()
    for bucket in result_buckets(session):
        try:
            if bucket.head(key) is not None:
                return bucket
        except ApiError as error:  # a region out of order must not hide the runs of another
            unread.append(error)
    if unread:
        raise unread[0]
    raise _not_found(session, run_id)


def _not_found(session: Session, run_id: str) -> RunNotFound:
    if session.cloud == "local":
        return RunNotFound(
            f"The local cloud that runs now doesn't know {run_id}; a cloud's runs end with it",
            hint="gpurun status lists its runs; is it on AWS (--cloud aws)?",
        )
    return RunNotFound(
        f"No bucket of the account {session.account} holds a run {run_id}",
        hint="gpurun status lists the runs of this account; is it another AWS_PROFILE?",
    )


def _account_prefix(session: Session) -> str:
    return f"{PREFIX}-{session.account}-"


def _own_names(session: Session, prefix: str) -> list[str]:
    """Listing shows only what the account owns: a check that works on any S3."""
    pages = session.client("s3").get_paginator("list_buckets").paginate(Prefix=prefix)
    names = [entry["Name"] for page in pages for entry in page.get("Buckets", [])]
    return sorted(name for name in names if name.startswith(prefix))


def _is_ours(bucket: Bucket) -> bool:
    """Whether it exists already.

    Raises:
        BucketError: it exists and isn't ours.
    """
    session = bucket.session
    try:
        session.client("s3").head_bucket(Bucket=bucket.name, ExpectedBucketOwner=session.account)
    except Exception as error:
        if is_missing(error):
            return False
        if classify(error) is Refusal.DENIED or code(error) in ("301", "PermanentRedirect"):
            raise _foreign(bucket) from error
        raise
    if bucket.name not in _own_names(session, bucket.name):
        raise _foreign(bucket)
    return True


def _create(bucket: Bucket) -> None:
    s3, region = bucket.session.client("s3"), bucket.session.region
    # us-east-1 is S3's default and refused as an explicit location.
    where: dict[str, Any] = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    try:
        s3.create_bucket(
            Bucket=bucket.name,
            ObjectOwnership="BucketOwnerEnforced",
            **(where if region != "us-east-1" else {}),
        )
    except Exception as error:
        if code(error) == "BucketAlreadyExists":
            raise _foreign(bucket) from error
        if code(error) not in ("BucketAlreadyOwnedByYou", "OperationAborted"):
            raise


def _is_new(error: Exception) -> bool:
    """A bucket made a moment ago, or by another command at this moment."""
    return is_missing(error) or code(error) in _RACED


def _foreign(bucket: Bucket) -> BucketError:
    return BucketError(
        f"The bucket {bucket.name} exists but doesn't belong to {bucket.session.account}",
        hint="Run in another region; nothing was created.",
    )
