"""S3: buckets and their settings, and whose they are."""

from __future__ import annotations

from typing import Any

from tests.faults.cloud.buckets import BucketState
from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.service import Service
from tests.faults.cloud.things import Json


class Buckets(Service):
    def create_bucket(
        self,
        *,
        Bucket: str,
        CreateBucketConfiguration: Json | None = None,
        ObjectOwnership: str = "",
    ) -> Json:
        present = self._account.buckets.get(Bucket)
        if present is not None and present.owner != self._account.id:
            raise Refused(
                "BucketAlreadyExists", "The requested bucket name is not available.", 409
            )
        if present is not None and self._region.name != "us-east-1":
            raise Refused("BucketAlreadyOwnedByYou", "You already own this bucket.", 409)
        place = (CreateBucketConfiguration or {}).get("LocationConstraint", "us-east-1")
        if place != self._region.name:
            raise Refused("IllegalLocationConstraintException", f"{place} isn't here")
        if present is None:
            now = self._account.timeline.time()
            self._account.buckets[Bucket] = BucketState(Bucket, self._account.id, place, now)
        return {"Location": f"/{Bucket}"}

    def head_bucket(self, *, Bucket: str, ExpectedBucketOwner: str = "") -> Json:
        bucket = self._account.buckets.get(Bucket)
        if bucket is None:
            raise Refused("404", "Not Found", 404)
        if bucket.owner != (ExpectedBucketOwner or self._account.id):
            raise Refused("403", "Forbidden", 403)
        if bucket.region != self._region.name:
            raise Refused("301", "Moved Permanently", 301)
        return {"BucketRegion": bucket.region}

    def list_buckets(self, *, Prefix: str = "") -> Json:
        """Those of the account, in every region."""
        found = [
            {"Name": bucket.name, "CreationDate": bucket.made_at, "BucketRegion": bucket.region}
            for bucket in self._account.buckets.values()
            if bucket.owner == self._account.id and bucket.name.startswith(Prefix)
        ]
        return {"Buckets": found}

    def delete_bucket(self, *, Bucket: str, ExpectedBucketOwner: str = "") -> Json:
        bucket = self._bucket(Bucket, ExpectedBucketOwner)
        if bucket.objects:
            raise Refused("BucketNotEmpty", "The bucket you tried to delete is not empty", 409)
        del self._account.buckets[Bucket]
        return {}

    def put_bucket_versioning(
        self, *, Bucket: str, VersioningConfiguration: Json, ExpectedBucketOwner: str = ""
    ) -> Json:
        bucket = self._bucket(Bucket, ExpectedBucketOwner)
        bucket.versioned = VersioningConfiguration["Status"] == "Enabled"
        return {}

    def get_bucket_versioning(self, *, Bucket: str, ExpectedBucketOwner: str = "") -> Json:
        bucket = self._bucket(Bucket, ExpectedBucketOwner)
        return {"Status": "Enabled"} if bucket.versioned else {}

    def put_public_access_block(self, **asked: Any) -> Json:
        return self._set("public_access_block", **asked)

    def get_public_access_block(self, *, Bucket: str, ExpectedBucketOwner: str = "") -> Json:
        found = self._bucket(Bucket, ExpectedBucketOwner).settings.get("public_access_block")
        if found is None:
            raise Refused(
                "NoSuchPublicAccessBlockConfiguration",
                "The public access block configuration was not found",
                404,
            )
        return dict(found)

    def put_bucket_encryption(self, **asked: Any) -> Json:
        return self._set("encryption", **asked)

    def put_bucket_policy(self, **asked: Any) -> Json:
        return self._set("policy", **asked)

    def put_bucket_lifecycle_configuration(self, **asked: Any) -> Json:
        return self._set("lifecycle", **asked)

    def put_bucket_tagging(self, **asked: Any) -> Json:
        return self._set("tagging", **asked)

    def get_bucket_policy(self, *, Bucket: str, ExpectedBucketOwner: str = "") -> Json:
        policy = self._bucket(Bucket, ExpectedBucketOwner).settings.get("policy")
        if policy is None:
            raise Refused("NoSuchBucketPolicy", "The bucket policy does not exist", 404)
        return dict(policy)

    def _set(self, name: str, *, Bucket: str, ExpectedBucketOwner: str = "", **value: Any) -> Json:
        self._bucket(Bucket, ExpectedBucketOwner).settings[name] = value
        return {}

    def _bucket(self, name: str, owner: str = "") -> BucketState:
        bucket = self._account.buckets.get(name)
        if bucket is None:
            raise Refused("NoSuchBucket", "The specified bucket does not exist", 404)
        if bucket.owner != (owner or self._account.id):
            raise Refused("AccessDenied", "Access Denied", 403)
        return bucket
