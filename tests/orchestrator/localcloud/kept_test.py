"""A box's call to SSM or Secrets Manager names its action and the thing it is about."""

from __future__ import annotations

import json

import boto3
import pytest

from orchestrator.localcloud import kept
from orchestrator.localcloud.strict import strict_aws

WHERE = "us-east-1:123456789012"


@pytest.mark.parametrize("name", ["/team/hf", "team-hf"])
def test_a_parameter_is_named_by_its_path(name: str) -> None:
    body = json.dumps({"Name": name, "WithDecryption": True}).encode()
    found = kept.parse("ssm", "us-east-1", "AmazonSSM.GetParameter", body)
    arn = f"arn:aws:ssm:{WHERE}:parameter/{name.lstrip('/')}"
    assert found == kept.KeptRequest("ssm:GetParameter", arn)


def test_a_secret_is_named_by_the_arn_that_it_has() -> None:
    with strict_aws():
        client = boto3.client("secretsmanager", "us-east-1")
        arn = client.create_secret(Name="team/hf", SecretString="x")["ARN"]
        body = json.dumps({"SecretId": "team/hf"}).encode()
        found = kept.parse("secretsmanager", "us-east-1", "secretsmanager.GetSecretValue", body)
    assert found == kept.KeptRequest("secretsmanager:GetSecretValue", arn)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"Names": ["/a"]}'])
def test_a_call_that_names_no_single_thing_is_about_everything(body: bytes) -> None:
    found = kept.parse("ssm", "us-east-1", "AmazonSSM.GetParameters", body)
    assert found == kept.KeptRequest("ssm:GetParameters", "*")
