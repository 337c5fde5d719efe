"""From a parameter's name to the image that a plan records."""

from __future__ import annotations

import pytest

from orchestrator.aws.images import resolve_ami
from orchestrator.aws.session import Session
from orchestrator.errors import CatalogError

from .account import IMAGE


def test_a_parameter_becomes_an_image_with_its_root_device(session: Session) -> None:
    ami = resolve_ami(session, IMAGE)
    assert ami.id.startswith("ami-")
    assert "Ubuntu 24.04" in ami.name
    assert (ami.root_device, ami.snapshot_gb) == ("/dev/sda1", 75)
    assert resolve_ami(session, IMAGE) == ami


def test_the_image_of_the_kill_proof_is_known_too(session: Session) -> None:
    ami = resolve_ami(
        session,
        "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
    )
    assert "ubuntu-noble-24.04" in ami.name
    assert (ami.root_device, ami.snapshot_gb) == ("/dev/sda1", 8)


def test_a_parameter_that_does_not_exist_is_told_with_the_region(session: Session) -> None:
    with pytest.raises(CatalogError, match="us-east-1 has no SSM parameter /aws/service/none"):
        resolve_ami(session, "/aws/service/none")


def test_a_parameter_whose_image_is_gone_is_told(session: Session) -> None:
    ami = resolve_ami(session, IMAGE)
    session.client("ec2").deregister_image(ImageId=ami.id)
    with pytest.raises(CatalogError, match=f"{ami.id}, which isn't available"):
        resolve_ami(session, IMAGE)
