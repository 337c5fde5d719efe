"""The run's SSH key: imported, never made by AWS, so that AWS never holds the private half."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.aws.refusals import boundary, code
from orchestrator.aws.removal import remove
from orchestrator.aws.tags import RunTags, named, of_run

if TYPE_CHECKING:
    from orchestrator.aws.session import Session


@boundary()
def ensure_key_pair(session: Session, tags: RunTags, public_openssh: str) -> str:
    """Import the key under the run's name, which is returned; another key there is replaced."""
    ec2, name = session.client("ec2"), named(tags.run_id)
    found = ec2.describe_key_pairs(Filters=of_run(tags.run_id), IncludePublicKey=True)["KeyPairs"]
    if any(_body(pair.get("PublicKey", "")) == _body(public_openssh) for pair in found):
        return name
    if found:
        delete_key_pair(session, tags.run_id)
    try:
        ec2.import_key_pair(
            KeyName=name,
            PublicKeyMaterial=public_openssh.encode(),
            TagSpecifications=tags.spec("key-pair", role="key"),
        )
    except Exception as error:
        if code(error) != "InvalidKeyPair.Duplicate":
            raise
    return name


@boundary()
def delete_key_pair(session: Session, run_id: str) -> None:
    """Delete the run's keys; running boxes keep what they have."""
    ec2 = session.client("ec2")
    for pair in ec2.describe_key_pairs(Filters=of_run(run_id))["KeyPairs"]:
        remove(session, ec2.delete_key_pair, KeyName=pair["KeyName"])


def _body(public_openssh: str) -> list[str]:
    """Type and key without the comment, which EC2 may change."""
    return public_openssh.split()[:2]
