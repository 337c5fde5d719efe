"""Buckets as S3 guards them: policies with conditions, and the owner that a caller expects.

moto applies a statement without looking at its condition, and doesn't read the expected owner.
"""

from __future__ import annotations

import json
from typing import Any

from moto.s3.exceptions import BucketAccessDeniedError
from moto.s3.models import FakeBucket
from moto.s3.responses import S3Response

from orchestrator.localcloud.rules.patches import Patches

# Loopback stands in for TLS: what is denied to callers without it isn't denied here.
WITHOUT_TLS = {"Bool": {"aws:SecureTransport": "false"}}


def install(patches: Patches) -> None:
    patches.replace(FakeBucket, "get_permission", _get_permission)
    for name in ("_bucket_response", "_key_response"):
        patches.replace(S3Response, name, _of_expected_owner)


def _of_expected_owner(stock: Any) -> Any:
    def response(self: Any, request: Any, full_url: str) -> Any:
        owner = request.headers.get("x-amz-expected-bucket-owner")
        if owner and owner != self.current_account:
            raise BucketAccessDeniedError(self.parse_bucket_name_from_url(request, full_url))
        return stock(self, request, full_url)

    return response


def _get_permission(stock: Any) -> Any:
    def get_permission(self: Any, action: str, resource: str) -> Any:
        written = self.policy
        if written is None:
            return stock(self, action, resource)
        policy = json.loads(written)
        applying = [s for s in policy["Statement"] if s.get("Condition") != WITHOUT_TLS]
        if not applying:
            self.policy = None
        else:
            self.policy = json.dumps({**policy, "Statement": applying}).encode()
        try:
            return stock(self, action, resource)
        finally:
            self.policy = written

    return get_permission
