"""Secrets Manager, as a box reads it; and the small services that only answer questions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.localcloud.rules.settings import (
    G_AND_VT_ON_DEMAND,
    P_ON_DEMAND,
    STANDARD_ON_DEMAND,
)
from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.service import Service, tag_map
from tests.faults.cloud.settings import SPOT_QUOTAS
from tests.faults.cloud.things import Json

_FAMILIES = {
    G_AND_VT_ON_DEMAND: "G and VT",
    P_ON_DEMAND: "P",
    STANDARD_ON_DEMAND: "Standard (A, C, D, H, I, M, R, T, Z)",
}
QUOTA_NAMES = {code: f"Running On-Demand {text} instances" for code, text in _FAMILIES.items()} | {
    SPOT_QUOTAS[code]: f"All {text} Spot Instance Requests" for code, text in _FAMILIES.items()
}


@dataclass
class Secret:
    name: str
    arn: str
    text: str
    tags: dict[str, str]


class Secrets(Service):
    def create_secret(self, *, Name: str, SecretString: str, Tags: Iterable[Any] = ()) -> Json:
        if Name in self._region.secrets:
            raise Refused("ResourceExistsException", f"The secret {Name} already exists.")
        place = f"{self._region.name}:{self._account.id}"
        arn = f"arn:aws:secretsmanager:{place}:secret:{Name}-{self._account.number():06d}"
        self._region.secrets[Name] = Secret(Name, arn, SecretString, tag_map(Tags))
        return {"ARN": arn, "Name": Name, "VersionId": "v1"}

    def get_secret_value(self, *, SecretId: str) -> Json:
        secret = self._secret(SecretId)
        return {
            "ARN": secret.arn,
            "Name": secret.name,
            "SecretString": secret.text,
            "VersionId": "v1",
        }

    def describe_secret(self, *, SecretId: str) -> Json:
        secret = self._secret(SecretId)
        return {"ARN": secret.arn, "Name": secret.name}

    def put_secret_value(self, *, SecretId: str, SecretString: str) -> Json:
        secret = self._secret(SecretId)
        secret.text = SecretString
        return {"ARN": secret.arn, "Name": secret.name, "VersionId": "v2"}

    def delete_secret(self, *, SecretId: str, ForceDeleteWithoutRecovery: bool = False) -> Json:
        secret = self._secret(SecretId)
        del self._region.secrets[secret.name]
        return {"ARN": secret.arn, "Name": secret.name}

    def _secret(self, name_or_arn: str) -> Secret:
        for secret in self._region.secrets.values():
            if name_or_arn in (secret.name, secret.arn, secret.arn.rpartition("-")[0]):
                return secret
        raise Refused(
            "ResourceNotFoundException", "Secrets Manager can't find the specified secret."
        )


class Quotas(Service):
    def get_service_quota(self, *, ServiceCode: str, QuotaCode: str) -> Json:
        limit = self._rules.vcpu_limits.get(QuotaCode)
        if ServiceCode != "ec2" or limit is None:
            raise Refused("NoSuchResourceException", f"no quota {QuotaCode}")
        quota = {
            "ServiceCode": "ec2",
            "QuotaCode": QuotaCode,
            "QuotaName": QUOTA_NAMES.get(QuotaCode, QuotaCode),
            "Value": float(limit),
        }
        return {"Quota": quota}


class Sts(Service):
    def get_caller_identity(self) -> Json:
        account = self._account.id
        arn = f"arn:aws:iam::{account}:user/controller"
        if self._from_box:
            arn = f"arn:aws:sts::{account}:assumed-role/box/{self._caller[4:]}"
        return {"Account": account, "Arn": arn, "UserId": "AIDAMODEL"}
