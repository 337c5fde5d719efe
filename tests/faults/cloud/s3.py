"""S3: objects, with conditions, checksums, ranges, parts and old versions; metered per run."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError

from tests.faults.cloud.access import may_list_all
from tests.faults.cloud.buckets import BucketState, Upload, Version, new_version, run_of
from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.s3_buckets import Buckets
from tests.faults.cloud.things import Json

_PART_MINIMUM = 5 << 20
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class Body:
    """As botocore's streaming body."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read(self, amt: int | None = None) -> bytes:
        start = self._at
        self._at = len(self._data) if amt is None else min(len(self._data), start + amt)
        return self._data[start : self._at]

    def iter_chunks(self, chunk_size: int = 1024) -> Iterator[bytes]:
        while chunk := self.read(chunk_size):
            yield chunk

    def close(self) -> None:
        """Nothing is held."""


class S3(Buckets):
    def put_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Body: Any = b"",
        ExpectedBucketOwner: str = "",
        IfNoneMatch: str = "",
        IfMatch: str = "",
        **more: Any,
    ) -> Json:
        bucket = self._bucket(Bucket, ExpectedBucketOwner)
        data = _bytes(Body)
        _check_sums(data, more)
        _check_condition(bucket, Key, IfNoneMatch, IfMatch)
        version = new_version(self._account, data)
        version.metadata = dict(more.get("Metadata", {}))
        bucket.write(Key, version)
        self._count(Key, put=True)
        return _written(bucket, version)

    def get_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Range: str = "",
        VersionId: str = "",
        ExpectedBucketOwner: str = "",
        IfMatch: str = "",
    ) -> Json:
        bucket = self._bucket(Bucket, ExpectedBucketOwner)
        version = self._found(bucket, Key, VersionId)
        if version is None:
            raise Refused("NoSuchKey", "The specified key does not exist.", 404)
        if IfMatch and version.etag != IfMatch:
            raise _failed()
        data = version.data or b""
        extra: Json = {}
        if Range:
            data, extra = _part(data, Range)
        self._count(Key, bytes_out=len(data))
        return (
            self._described(bucket, version)
            | extra
            | {
                "Body": _body(data),
                "ContentLength": len(data),
            }
        )

    def head_object(
        self, *, Bucket: str, Key: str, VersionId: str = "", ExpectedBucketOwner: str = ""
    ) -> Json:
        bucket = self._account.buckets.get(Bucket)
        if bucket is None:
            raise Refused("404", "Not Found", 404)
        if bucket.owner != (ExpectedBucketOwner or self._account.id):
            raise Refused("403", "Forbidden", 403)
        try:
            version = self._found(bucket, Key, VersionId)
        except Refused as refused:
            raise Refused("403", "Forbidden", 403) from refused
        if version is None:
            raise Refused("404", "Not Found", 404)
        return self._described(bucket, version) | {"ContentLength": len(version.data or b"")}

    def list_objects_v2(
        self,
        *,
        Bucket: str,
        Prefix: str = "",
        Delimiter: str = "",
        StartAfter: str = "",
        ContinuationToken: str = "",
        MaxKeys: int = 1000,
        ExpectedBucketOwner: str = "",
    ) -> Json:
        bucket = self._bucket(Bucket, ExpectedBucketOwner)
        self._count(Prefix, put=True)
        after = ContinuationToken or StartAfter
        rows, more = _page(bucket.keys(Prefix), Prefix, Delimiter, after, MaxKeys)
        answer: Json = {"Name": Bucket, "Prefix": Prefix, "IsTruncated": more}
        answer["KeyCount"] = len(rows)
        contents = [key for key, is_folder in rows if not is_folder]
        folders = [key for key, is_folder in rows if is_folder]
        if contents:
            answer["Contents"] = [_row(bucket, key) for key in contents]
        if folders:
            answer["CommonPrefixes"] = [{"Prefix": folder} for folder in folders]
        if more:
            answer["NextContinuationToken"] = rows[-1][0]
        return answer

    def list_object_versions(
        self, *, Bucket: str, Prefix: str = "", ExpectedBucketOwner: str = ""
    ) -> Json:
        bucket = self._bucket(Bucket, ExpectedBucketOwner)
        rows: dict[str, list[Json]] = {"Versions": [], "DeleteMarkers": []}
        for key in sorted(key for key in bucket.objects if key.startswith(Prefix)):
            versions = bucket.objects[key]
            for version in reversed(versions):
                row: Json = {
                    "Key": key,
                    "VersionId": version.id,
                    "IsLatest": version is versions[-1],
                }
                kind = "DeleteMarkers" if version.data is None else "Versions"
                row["LastModified"], row["Size"] = version.at, len(version.data or b"")
                rows[kind].append(row)
        return {name: found for name, found in rows.items() if found}

    def delete_object(
        self, *, Bucket: str, Key: str, VersionId: str = "", ExpectedBucketOwner: str = ""
    ) -> Json:
        bucket = self._bucket(Bucket, ExpectedBucketOwner)
        if VersionId:
            kept = [v for v in bucket.objects.get(Key, []) if v.id != VersionId]
            bucket.objects[Key] = kept
        elif bucket.versioned:
            bucket.objects.setdefault(Key, []).append(new_version(self._account, None))
            return {"DeleteMarker": True, "VersionId": bucket.objects[Key][-1].id}
        if not VersionId or not bucket.objects[Key]:
            bucket.objects.pop(Key, None)
        return {}

    def delete_objects(self, *, Bucket: str, Delete: Json, ExpectedBucketOwner: str = "") -> Json:
        for each in Delete["Objects"]:
            self.delete_object(Bucket=Bucket, ExpectedBucketOwner=ExpectedBucketOwner, **each)
        return {"Deleted": Delete["Objects"]}

    def create_multipart_upload(
        self, *, Bucket: str, Key: str, ExpectedBucketOwner: str = "", **_: Any
    ) -> Json:
        bucket = self._bucket(Bucket, ExpectedBucketOwner)
        name = f"upload-{self._account.number()}"
        bucket.uploads[name] = Upload(Key)
        self._count(Key, put=True)
        return {"Bucket": Bucket, "Key": Key, "UploadId": name}

    def upload_part(
        self, *, Bucket: str, Key: str, UploadId: str, PartNumber: int, Body: Any, **more: Any
    ) -> Json:
        upload = self._upload(Bucket, Key, UploadId)
        data = _bytes(Body)
        _check_sums(data, more)
        upload.parts[PartNumber] = data
        self._count(Key, put=True)
        return {"ETag": new_version(self._account, data).etag}

    def list_parts(self, *, Bucket: str, Key: str, UploadId: str, **_: Any) -> Json:
        parts = self._upload(Bucket, Key, UploadId).parts
        return {"Parts": [{"PartNumber": n, "Size": len(parts[n])} for n in sorted(parts)]}

    def complete_multipart_upload(
        self,
        *,
        Bucket: str,
        Key: str,
        UploadId: str,
        MultipartUpload: Json,
        IfNoneMatch: str = "",
        **_: Any,
    ) -> Json:
        upload, bucket = self._upload(Bucket, Key, UploadId), self._bucket(Bucket)
        parts = [_checked_part(upload, each) for each in MultipartUpload["Parts"]]
        if any(len(part) < _PART_MINIMUM for part in parts[:-1]):
            raise Refused(
                "EntityTooSmall",
                "Your proposed upload is smaller than the minimum allowed object size.",
            )
        _check_condition(bucket, Key, IfNoneMatch, "")
        sums = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts)
        etag = f'"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(parts)}"'
        version = new_version(self._account, b"".join(parts), etag)
        bucket.write(Key, version)
        del bucket.uploads[UploadId]
        self._count(Key, put=True)
        return _written(bucket, version) | {"Bucket": Bucket, "Key": Key}

    def abort_multipart_upload(
        self, *, Bucket: str, Key: str, UploadId: str, ExpectedBucketOwner: str = ""
    ) -> Json:
        self._upload(Bucket, Key, UploadId)
        del self._account.buckets[Bucket].uploads[UploadId]
        return {}

    def list_multipart_uploads(self, *, Bucket: str, Prefix: str = "", **_: Any) -> Json:
        found = self._bucket(Bucket).uploads.items()
        rows = [{"UploadId": n, "Key": u.key} for n, u in found if u.key.startswith(Prefix)]
        return {"Uploads": rows} if rows else {}

    def _upload(self, bucket: str, key: str, upload_id: str) -> Upload:
        upload = self._bucket(bucket).uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise Refused("NoSuchUpload", "The specified multipart upload does not exist.", 404)
        return upload

    def _found(self, bucket: BucketState, key: str, version_id: str) -> Version | None:
        """None when S3 would say 404; it says 403 to those who may not list."""
        if version_id:
            versions = bucket.objects.get(key, [])
            version = next(
                (v for v in versions if v.id == version_id and v.data is not None), None
            )
        else:
            version = bucket.newest(key)
        if version is None and not may_list_all(self._account, self._caller, bucket.name):
            raise Refused("AccessDenied", "Access Denied", 403)
        return version

    def _described(self, bucket: BucketState, version: Version) -> Json:
        seen = {
            "ETag": version.etag,
            "LastModified": version.at.replace(microsecond=0),
            "Metadata": dict(version.metadata),
        }
        return seen | ({"VersionId": version.id} if bucket.versioned else {})

    def _count(self, key: str, *, put: bool = False, bytes_out: int = 0) -> None:
        if run := run_of(key):
            out = 0 if self._from_box else bytes_out
            self._account.meter.s3_request(run, put=put, bytes_out=out)


def upload_failed(filename: str, to: str, error: ClientError) -> Any:
    """A transfer hides the answer of S3 in its own error."""
    return S3UploadFailedError(f"Failed to upload {filename} to {to}: {error}")


def _bytes(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode()
    return bytes(body) if isinstance(body, (bytes, bytearray, memoryview)) else body.read()


def _body(data: bytes) -> Body:
    return Body(data)


def _check_sums(data: bytes, given: Json) -> None:
    sums: dict[str, Callable[[bytes], bytes]] = {
        "ContentMD5": lambda b: hashlib.md5(b, usedforsecurity=False).digest(),
        "ChecksumSHA256": lambda b: hashlib.sha256(b).digest(),
        "ChecksumCRC32": lambda b: zlib.crc32(b).to_bytes(4, "big"),
    }
    for name, digest in sums.items():
        if name in given and given[name] != base64.b64encode(digest(data)).decode():
            raise Refused("BadDigest", f"The {name} you specified did not match what we received.")


def _check_condition(bucket: BucketState, key: str, none: str, match: str) -> None:
    if not none and not match:
        return
    newest = bucket.newest(key)
    if none and newest is not None:
        raise _failed()
    if match and newest is None:
        raise Refused("NoSuchKey", "The specified key does not exist.", 404)
    if match and newest is not None and newest.etag != match:
        raise _failed()


def _failed() -> Refused:
    return Refused(
        "PreconditionFailed",
        "At least one of the pre-conditions you specified did not hold",
        412,
    )


def _checked_part(upload: Upload, named: Json) -> bytes:
    data = upload.parts.get(named["PartNumber"])
    digest = hashlib.md5(data or b"", usedforsecurity=False).hexdigest()
    if data is None or named["ETag"].strip('"') != digest:
        raise Refused("InvalidPart", "One or more of the specified parts could not be found.")
    return data


def _written(bucket: BucketState, version: Version) -> Json:
    return {"ETag": version.etag} | ({"VersionId": version.id} if bucket.versioned else {})


def _part(data: bytes, asked: str) -> tuple[bytes, Json]:
    found = _RANGE.fullmatch(asked)
    if not found:
        return data, {}
    size = len(data)
    start = int(found[1]) if found[1] else max(0, size - int(found[2]))
    end = min(size - 1, int(found[2])) if found[1] and found[2] else size - 1
    if start >= size:
        raise Refused("InvalidRange", "The requested range is not satisfiable", 416)
    return data[start : end + 1], {"ContentRange": f"bytes {start}-{end}/{size}"}


def _page(
    keys: Iterable[str], prefix: str, delimiter: str, after: str, most: int
) -> tuple[list[tuple[str, bool]], bool]:
    """Keys and folders (True) after a name, and whether there are more."""
    rows: list[tuple[str, bool]] = []
    if not delimiter and not after:
        rows = [(key, False) for key in keys]
        return rows[:most], len(rows) > most
    begin = after.encode()
    for key in keys:
        row = (key, False)
        if delimiter and delimiter in key[len(prefix) :]:
            head = key[len(prefix) :].partition(delimiter)[0]
            row = (prefix + head + delimiter, True)
        if (begin and row[0].encode() <= begin) or (rows and rows[-1] == row):
            continue
        if len(rows) == most:
            return rows, True
        rows.append(row)
    return rows, False


def _row(bucket: BucketState, key: str) -> Json:
    version = bucket.objects[key][-1]
    at = version.at
    return {
        "Key": key,
        "Size": len(version.data or b""),
        "ETag": version.etag,
        "LastModified": at.replace(microsecond=0) if at.microsecond else at,
    }
