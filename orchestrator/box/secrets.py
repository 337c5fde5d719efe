"""Reads the jobs' secrets from where the person keeps them, by the box's own role.

What is read goes into jobs' environments and nowhere else; errors name the variable and where it
is kept, never what it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

SSM, SECRETS_MANAGER = "ssm", "secretsmanager"
_CONFIG = Config(
    connect_timeout=5,
    read_timeout=10,
    retries={"mode": "standard", "total_max_attempts": 3},
)


class SecretUnread(Exception):
    """A secret can't be read now; the message names its variable."""


def read_secrets(sources: Mapping[str, str], region: str) -> dict[str, str]:
    """Each variable's value, from `ssm:/path` or `secretsmanager:name`. Raises SecretUnread."""
    make: Any = boto3.session.Session(region_name=region).client
    return {name: _read(make, name, at) for name, at in sources.items()}


def _read(make: Any, name: str, at: str) -> str:
    service, _, key = at.partition(":")
    try:
        client = make(service, config=_CONFIG)
        value = _VALUE[service](client, key)
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        raise SecretUnread(f"{name} can't be read from {at}: {code}") from None
    except BotoCoreError as error:
        raise SecretUnread(f"{name} can't be read from {at}: {type(error).__name__}") from None
    if not value or "\0" in value:
        raise SecretUnread(f"{name} is {'no text' if value else 'empty'} in {at}")
    return value


def _from_ssm(client: Any, key: str) -> str:
    return str(client.get_parameter(Name=key, WithDecryption=True)["Parameter"]["Value"])


def _from_secrets_manager(client: Any, key: str) -> str:
    return str(client.get_secret_value(SecretId=key).get("SecretString", ""))


_VALUE = {SSM: _from_ssm, SECRETS_MANAGER: _from_secrets_manager}
