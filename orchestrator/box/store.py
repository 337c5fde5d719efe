"""The run's objects in S3, as a box may touch them: read, write, list; never delete.

Every failure that is the network's or S3's is `StoreDown`; the caller tries again later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from orchestrator.box.connection import Connection, StoreDown, code
from orchestrator.box.parts import Changed, Paused, Send, Span, Stop, Upload, never, send_parts
from orchestrator.box.regular import open_regular
from orchestrator.box.streams import STREAMS

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")
PART_BYTES = 32 << 20
DENIED = {"AccessDenied", "403", "Forbidden"}
# An upload that can't be gone on with: thrown away by a bucket rule, or complete already.
GONE = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder", "EntityTooSmall"}


class Store:
    """One run's part of the bucket; `prefix` ends with a slash and stands before every key.

    `fast`: give up within seconds, for reports that are soon out of date.
    """

    def __init__(self, bucket: str, region: str, prefix: str, *, fast: bool = False) -> None:
        self.bucket, self.prefix = bucket, prefix
        self._s3 = Connection(region, fast=fast)
        self._uploads: dict[str, Upload] = {}
        self._room = BoundedSemaphore(STREAMS)

    def put(self, key: str, data: bytes) -> None:
        self._s3.call(
            lambda s3: s3.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=data)
        )

    def put_new(self, key: str, data: bytes) -> bool:
        """False when the key is taken."""
        return self._s3.unless(
            {"PreconditionFailed", "412"},
            lambda s3: s3.put_object(
                Bucket=self.bucket, Key=self.prefix + key, Body=data, IfNoneMatch="*"
            ),
        )

    def put_over(self, key: str, data: bytes, etag: str) -> bool:
        """Replace exactly the version with that ETag; False when it's another by now."""
        return self._s3.unless(
            {"PreconditionFailed", "412", "NoSuchKey", "404"},
            lambda s3: s3.put_object(
                Bucket=self.bucket, Key=self.prefix + key, Body=data, IfMatch=etag
            ),
        )

    def holds(self, key: str) -> bool:
        """One request. A key that isn't there looks forbidden to a role that may list only under a
        prefix, so one that is forbidden counts as absent.
        """
        return self._s3.unless(
            {"404", "403"}, lambda s3: s3.head_object(Bucket=self.bucket, Key=self.prefix + key)
        )

    def get(self, key: str) -> bytes | None:
        found = self.get_tagged(key)
        return found and found[0]

    def get_tagged(self, key: str) -> tuple[bytes, str] | None:
        """Bytes and ETag, None when there's no such key."""

        def read(s3: S3Client) -> tuple[bytes, str]:
            reply = s3.get_object(Bucket=self.bucket, Key=self.prefix + key)
            return reply["Body"].read(), reply["ETag"]

        return self._or_none(key, read)

    def keys(self, under: str) -> list[tuple[str, int]]:
        """Names (without the prefix) and sizes of everything under `under`, in order."""

        def read(s3: S3Client) -> list[tuple[str, int]]:
            pages = s3.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix + under
            )
            skip = len(self.prefix)
            found = [item for page in pages for item in page.get("Contents", [])]
            return [(item["Key"][skip:], item["Size"]) for item in found]

        return self._s3.call(read)

    def chunks(self, key: str) -> Iterator[bytes]:
        """Raises Absent, StoreDown."""
        reply = self._s3.call(lambda s3: s3.get_object(Bucket=self.bucket, Key=self.prefix + key))
        with closing(reply["Body"]) as body:
            blocks = body.iter_chunks(1 << 20)
            while block := self._s3.call(lambda _: next(blocks, b"")):
                yield block

    def upload(
        self,
        key: str,
        path: Path,
        sha256: str,
        size: int,
        *,
        start: int = 0,
        stop: Stop = never,
        urgent: bool = False,
    ) -> None:
        """Put `size` of the file's bytes; nothing appears under `key` unless they hash right.

        A large one stops between two parts when it's told to, and goes on when it's asked for
        again. `urgent`: doesn't wait for its turn behind others. Raises Changed, Paused,
        StoreDown, OSError.
        """
        if size > PART_BYTES:
            self._upload_parts(key, Span(path, start, size), sha256, stop)
            return
        with nullcontext() if urgent else self._room:
            self.put(key, _checked(_read(path, start, size), sha256))

    def requests_for(self, size: int) -> int:
        """How many requests an object of that size takes."""
        return 1 if size <= PART_BYTES else 2 + -(-size // PART_BYTES)

    def forget(self, under: str, wanted: Collection[str]) -> None:
        """Throw away the parts of what has begun to go up, but for the `wanted` keys.

        Raises StoreDown.
        """
        for key in [key for key in self._uploads if key.startswith(under) and key not in wanted]:
            upload = self._uploads.pop(key, None)
            if upload:
                self._abort(key, upload.id)

    def abort_cut(self, under: str) -> None:
        """Throw away the parts that an earlier agent left behind; a bucket rule does, in a day.

        Raises StoreDown.
        """
        own = {upload.id for upload in self._uploads.values()}

        def read(s3: S3Client) -> list[tuple[str, str]]:
            reply: Any = s3.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix + under)
            return [(item["Key"], item["UploadId"]) for item in reply.get("Uploads", [])]

        try:
            left = self._s3.attempt(read)
        except ClientError as error:
            if code(error) in DENIED:
                return
            raise StoreDown(str(error)) from error
        for key, upload_id in left:
            if upload_id not in own:
                self._abort(key[len(self.prefix) :], upload_id)

    def _upload_parts(self, key: str, span: Span, sha256: str, stop: Stop) -> None:
        names: Any = {"Bucket": self.bucket, "Key": self.prefix + key}
        upload = self._uploads.get(key)
        if upload is None:
            begun = self._s3.call(lambda s3: s3.create_multipart_upload(**names))
            upload = self._uploads[key] = Upload(begun["UploadId"], PART_BYTES)
        names["UploadId"] = upload.id
        try:
            send_parts(upload, span, sha256, self._sender(names), stop, self._room)
            parts: Any = {"Parts": upload.sent}
            self._s3.call(lambda s3: s3.complete_multipart_upload(**names, MultipartUpload=parts))
        except (Paused, StoreDown) as error:
            if code(error.__cause__) in GONE:
                self._uploads.pop(key, None)
            raise
        except BaseException:
            self._uploads.pop(key, None)
            self._abort(key, upload.id)
            raise
        self._uploads.pop(key, None)

    def _sender(self, names: dict[str, Any]) -> Send:
        def send(number: int, block: bytes) -> dict[str, Any]:
            reply = self._s3.call(
                lambda s3: s3.upload_part(**names, PartNumber=number, Body=block)
            )
            return {"PartNumber": number, "ETag": reply["ETag"]}

        return send

    def _abort(self, key: str, upload_id: str) -> None:
        names: Any = {"Bucket": self.bucket, "Key": self.prefix + key, "UploadId": upload_id}
        self._s3.unless({"NoSuchUpload"}, lambda s3: s3.abort_multipart_upload(**names))

    def _or_none(self, key: str, work: Callable[[S3Client], T]) -> T | None:
        try:
            return self._s3.attempt(work)
        except ClientError as error:
            if code(error) in {"NoSuchKey", "404", "NotFound"} or self._is_absent(key, error):
                return None
            raise StoreDown(str(error)) from error

    def _is_absent(self, key: str, error: ClientError) -> bool:
        """S3 says 403 for a missing key to a role that may list only under a prefix: so list."""
        return code(error) in DENIED and key not in [name for name, _ in self.keys(key)]


def _read(path: Path, start: int, size: int) -> bytes:
    with open_regular(path) as file:
        file.seek(start)
        return file.read(size)


def _checked(data: bytes, sha256: str) -> bytes:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Changed(sha256)
    return data
