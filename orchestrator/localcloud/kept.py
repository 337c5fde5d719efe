"""What a box asks of SSM and Secrets Manager, in IAM's words: which action, on what.

Both speak JSON and name the operation in a header. Where a secret's own ARN ends nobody can guess,
so it is looked up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.secretsmanager.models import secretsmanager_backends

SERVICES = ("ssm", "secretsmanager")


@dataclass(frozen=True)
class KeptRequest:
    """One call; a call that names no single thing is on everything."""

    action: str
    resource: str


def parse(service: str, region: str, target: str, body: bytes) -> KeptRequest:
    """`target`: the header X-Amz-Target, like `AmazonSSM.GetParameter`."""
    action = f"{service}:{target.rpartition('.')[2]}"
    try:
        asked = json.loads(body or b"{}")
        name = str(asked.get("Name") or asked.get("SecretId") or "")
    except (ValueError, AttributeError):
        name = ""
    where = f"arn:aws:{service}:{region}:{DEFAULT_ACCOUNT_ID}"
    if not name:
        return KeptRequest(action, "*")
    if service == "ssm":
        return KeptRequest(action, f"{where}:parameter/{name.lstrip('/')}")
    return KeptRequest(action, _secret_arn(region, name) or f"{where}:secret:{name}")


def _secret_arn(region: str, name: str) -> str | None:
    secrets = secretsmanager_backends[DEFAULT_ACCOUNT_ID][region].secrets
    found = secrets.get(name)
    return str(found.arn) if found is not None else None
