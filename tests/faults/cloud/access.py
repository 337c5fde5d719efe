"""Whether a caller may: the controller may all, a box what its role's policy allows by now."""

from __future__ import annotations

from typing import Any

from orchestrator.localcloud import policy
from tests.faults.cloud.account import Account
from tests.faults.cloud.iam import Role
from tests.faults.cloud.refusal import Refused

_READS = {"head_object", "get_object", "download_file"}
_S3_ACTIONS = {
    "abort_multipart_upload": "AbortMultipartUpload",
    "delete_object": "DeleteObject",
    "delete_objects": "DeleteObject",
    "list_buckets": "ListAllMyBuckets",
    "list_object_versions": "ListBucketVersions",
    "list_objects_v2": "ListBucket",
    "head_bucket": "ListBucket",
    "list_parts": "ListMultipartUploadParts",
    "list_multipart_uploads": "ListBucketMultipartUploads",
} | dict.fromkeys(_READS, "GetObject")
_S3_WRITES = {
    "put_object",
    "create_multipart_upload",
    "upload_part",
    "complete_multipart_upload",
}
_DENIED = {"ec2": "UnauthorizedOperation", "s3": "AccessDenied", "sqs": "AccessDenied"}


def box_role(account: Account, instance_id: str) -> Role | None:
    """The role behind a box's credentials; None when it, or the profile, is gone."""
    instance = account.instances.get(instance_id)
    profile = account.profiles.get(instance.profile) if instance else None
    return account.roles.get(profile.roles[0]) if profile and profile.roles else None


def check(
    account: Account, region: str, caller: str, service: str, operation: str, asked: Any
) -> None:
    """Refuse what a box's role doesn't allow; `operation` is boto3's name."""
    if not caller.startswith("box:") or service == "sts":
        return
    role = box_role(account, caller[4:])
    action, resource, context = _request(account, region, service, operation, asked)
    if role is None or not role.allows(action, resource, context):
        if operation.startswith("head_"):
            raise Refused("403", "Forbidden", 403)
        raise Refused(
            _DENIED.get(service, "AccessDeniedException"),
            f"The box's role doesn't allow {action} on {resource}",
            403 if service in _DENIED else 400,
        )


def may_list_all(account: Account, caller: str, bucket: str) -> bool:
    """Without that right, S3 says 403 where it would say 404."""
    if not caller.startswith("box:"):
        return True
    role = box_role(account, caller[4:])
    arn = f"arn:aws:s3:::{bucket}"
    return role is not None and role.allows("s3:ListBucket", arn, {})


def may_be_assumed(account: Account, role: Role, service: str, source: str) -> bool:
    """Whether the role's trust lets a service in, and the role is old enough."""
    if role.made_at > account.timeline.ago(account.rules.role_delay_s):
        return False
    context = {"aws:SourceAccount": account.id, "aws:SourceArn": source}
    statements = role.trust.get("Statement", [])
    for statement in statements if isinstance(statements, list) else [statements]:
        named = statement.get("Principal", {}).get("Service", [])
        if service in ([named] if isinstance(named, str) else named):
            document = {"Statement": {**statement, "Resource": "*"}}
            if policy.allows([document], "sts:AssumeRole", "*", context):
                return True
    return False


def _request(
    account: Account, region: str, service: str, operation: str, asked: Any
) -> tuple[str, str, dict[str, str]]:
    """Action, resource and context, as IAM sees the call."""
    if service == "s3":
        return _s3_request(operation, asked)
    action = f"{service}:{api_name(operation)}"
    place = f"{region}:{account.id}"
    if service == "ssm":
        return action, f"arn:aws:ssm:{place}:parameter/{asked.get('Name', '*').lstrip('/')}", {}
    if service == "secretsmanager":
        return action, account.region(region).secret_arn(asked.get("SecretId", "*")), {}
    if service == "sqs":
        return action, f"arn:aws:sqs:{place}:{asked.get('QueueUrl', '*').rpartition('/')[2]}", {}
    return action, "*", {}


def _s3_request(operation: str, asked: Any) -> tuple[str, str, dict[str, str]]:
    action = _S3_ACTIONS.get(operation)
    if action is None:
        action = "PutObject" if operation in _S3_WRITES else "PutBucketConfiguration"
    bucket, key = asked.get("Bucket", ""), asked.get("Key", "")
    resource = f"arn:aws:s3:::{bucket}" + (f"/{key}" if key else "")
    return f"s3:{action}", resource, {} if key else {"s3:prefix": asked.get("Prefix", "")}


def api_name(operation: str) -> str:
    """`RunInstances` of `run_instances`."""
    return "".join(part.capitalize() for part in operation.split("_"))
