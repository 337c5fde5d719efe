"""What an instance can read about itself: the metadata tree, made from moto's records."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

from orchestrator.localcloud.imds import Metadata
from orchestrator.localcloud.spot import notice_of

_CREDENTIALS_LAST = timedelta(hours=6)
BOX_KEY_PREFIX = "ASIABOX"


def access_key_of(instance_id: str) -> str:
    """The access key id of the credentials that this instance's role gives it."""
    return BOX_KEY_PREFIX + hashlib.sha256(instance_id.encode()).hexdigest()[:13].upper()


def metadata_of(instance: Any, now: datetime) -> Metadata:
    options = instance.metadata_options
    return Metadata(
        tree=_tree(instance, now),
        enabled=options.http_endpoint == "enabled",
        tokens_required=options.http_tokens == "required",
    )


def user_data_of(instance: Any) -> bytes:
    return base64.b64decode(str(instance.user_data)) if instance.user_data else b""


def public_key_of(instance: Any) -> str:
    """The public key of the instance's key pair in OpenSSH's form; empty without one."""
    key = instance.ec2_backend.key_pairs.get(instance.key_name) if instance.key_name else None
    return str(key.public_key).strip() if key is not None else ""


def role_of(instance: Any) -> Any:
    """The role that the instance's profile holds, or None."""
    backend = instance.ec2_backend
    association = backend.iam_instance_profile_associations.get(instance.id)
    roles = association.iam_instance_profile.roles if association is not None else []
    return roles[0] if roles else None


def _tree(instance: Any, now: datetime) -> dict[str, bytes]:
    nic = instance.nics[0]
    facts = {
        "ami-id": instance.image_id,
        "hostname": instance.private_dns_name,
        "instance-id": instance.id,
        "instance-life-cycle": instance.lifecycle or "on-demand",
        "instance-type": instance.instance_type,
        "local-hostname": instance.private_dns_name,
        "local-ipv4": nic.private_ip_address,
        "mac": nic.mac_address,
        "placement/availability-zone": instance.placement.zone,
        "placement/region": instance.region_name,
        "public-ipv4": nic.public_ip,
    }
    if key := public_key_of(instance):
        facts["public-keys/0/openssh-key"] = key
    if instance.metadata_options.instance_metadata_tags == "enabled":
        tags = dict(instance.ec2_backend.tags.get(instance.id, {}))
        facts |= {f"tags/instance/{name}": value for name, value in tags.items()}
    facts |= _credentials(instance, now) | notice_of(instance)
    tree = {f"/latest/meta-data/{k}": str(v).encode() for k, v in facts.items() if v}
    tree["/latest/dynamic/instance-identity/document"] = _identity(instance).encode()
    if user_data := user_data_of(instance):
        tree["/latest/user-data"] = user_data
    return tree


def _credentials(instance: Any, now: datetime) -> dict[str, str]:
    role = role_of(instance)
    if role is None:
        return {}
    stamp = "%Y-%m-%dT%H:%M:%SZ"
    credentials = {
        "Code": "Success",
        "LastUpdated": now.strftime(stamp),
        "Type": "AWS-HMAC",
        "AccessKeyId": access_key_of(instance.id),
        "SecretAccessKey": hashlib.sha256(f"secret {instance.id}".encode()).hexdigest()[:40],
        "Token": hashlib.sha256(f"token {instance.id}".encode()).hexdigest(),
        "Expiration": (now + _CREDENTIALS_LAST).strftime(stamp),
    }
    return {f"iam/security-credentials/{role.name}": json.dumps(credentials)}


def _identity(instance: Any) -> str:
    return json.dumps(
        {
            "accountId": instance.owner_id,
            "architecture": instance.architecture,
            "availabilityZone": instance.placement.zone,
            "imageId": instance.image_id,
            "instanceId": instance.id,
            "instanceType": instance.instance_type,
            "region": instance.region_name,
        }
    )
