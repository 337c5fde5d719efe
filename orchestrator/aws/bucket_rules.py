"""What a results bucket must have: private, encrypted, over TLS, and its old versions kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator.aws.tags import ROLE
from orchestrator.money import OLD_VERSION_DAYS

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

_MULTIPART_DAYS = 1

_PRIVATE: Any = dict.fromkeys(
    ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True
)
_ENCRYPTION: Any = {
    "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}],
}
_LIFECYCLE: Any = {
    "Rules": [
        {
            "ID": "abort-unfinished-uploads",
            "Status": "Enabled",
            "Filter": {"Prefix": ""},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": _MULTIPART_DAYS},
        },
        {
            "ID": "forget-overwritten-versions",
            "Status": "Enabled",
            "Filter": {"Prefix": ""},
            "NoncurrentVersionExpiration": {"NoncurrentDays": OLD_VERSION_DAYS},
        },
    ]
}


def apply_rules(session: Session, name: str) -> None:
    """Private before anything else; each call sets the whole of what it sets."""
    s3 = session.client("s3")
    it: dict[str, Any] = {"Bucket": name, "ExpectedBucketOwner": session.account}
    s3.put_public_access_block(**it, PublicAccessBlockConfiguration=_PRIVATE)
    s3.put_bucket_versioning(**it, VersioningConfiguration={"Status": "Enabled"})
    s3.put_bucket_encryption(**it, ServerSideEncryptionConfiguration=_ENCRYPTION)
    s3.put_bucket_policy(**it, Policy=json.dumps(tls_only(session.partition, name)))
    s3.put_bucket_lifecycle_configuration(**it, LifecycleConfiguration=_LIFECYCLE)
    s3.put_bucket_tagging(**it, Tagging={"TagSet": [{"Key": ROLE, "Value": "results"}]})


def tls_only(partition: str, name: str) -> dict[str, Any]:
    """A bucket policy that refuses everybody who comes without TLS."""
    arn = f"arn:{partition}:s3:::{name}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "TlsOnly",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [arn, f"{arn}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }
