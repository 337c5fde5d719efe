"""S3 requests as the cloud sees them: which run they belong to, and whether a box may make them.

Our buckets lay everything out as `runs/<run>/…`, so that a key names its run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from urllib.parse import parse_qs, unquote

from moto.s3.models import s3_backends

from orchestrator.localcloud.meter import Stored


@dataclass(frozen=True, kw_only=True)
class ObjectRequest:
    """An S3 request in path style."""

    action: str
    bucket: str
    key: str
    context: Mapping[str, str]
    run: str
    is_put: bool
    """Billed as a write; listing is."""

    @property
    def resource(self) -> str:
        return f"arn:aws:s3:::{self.bucket}" + (f"/{self.key}" if self.key else "")


def parse(method: str, path: str, query_string: str) -> ObjectRequest:
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    query = parse_qs(query_string, keep_blank_values=True)
    prefix = query.get("prefix", [""])[0]
    return ObjectRequest(
        action=_action(method, bucket, key, query),
        bucket=bucket,
        key=key,
        context={} if key else {"s3:prefix": prefix},
        run=run_of(key or prefix),
        is_put=method in ("PUT", "POST") or not key,
    )


def run_of(key: str) -> str:
    """The run that a key or prefix belongs to; empty for none."""
    head, _, rest = key.partition("/")
    return rest.partition("/")[0] if head == "runs" else ""


def _action(method: str, bucket: str, key: str, query: Mapping[str, object]) -> str:
    if not bucket:
        return "s3:ListAllMyBuckets"
    if not key and method == "GET" and "uploads" in query:
        return "s3:ListBucketMultipartUploads"
    if not key:
        return "s3:ListBucket" if method in ("GET", "HEAD") else "s3:PutBucketConfiguration"
    if method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"
    if method in ("PUT", "POST"):
        return "s3:PutObject"
    return "s3:ListMultipartUploadParts" if "uploadId" in query else "s3:GetObject"


def stored() -> Iterator[Stored]:
    """Everything that S3 holds for runs, old versions too."""
    for by_region in list(s3_backends.values()):
        for backend in list(by_region.values()):
            for bucket in list(backend.buckets.values()):
                yield from _stored_in(bucket)


def _stored_in(bucket: Any) -> Iterator[Stored]:
    for name in list(bucket.keys):
        if run := run_of(name):
            for version in bucket.keys.getlist(name, []):
                since = getattr(version, "last_modified", None)
                size = getattr(version, "size", 0)
                if since is not None:
                    aware = since if since.tzinfo else since.replace(tzinfo=UTC)
                    yield Stored(run=run, size_bytes=int(size), since=aware)
