"""Bucket policies: moto applies a statement without looking at its condition."""

from __future__ import annotations

import json
from typing import Any

from moto.s3.models import FakeBucket

from orchestrator.localcloud.rules.patches import Patches

# Loopback stands in for TLS: what is denied to callers without it isn't denied here.
WITHOUT_TLS = {"Bool": {"aws:SecureTransport": "false"}}


def install(patches: Patches) -> None:
    patches.replace(FakeBucket, "get_permission", _get_permission)


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
