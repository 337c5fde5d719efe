"""Service Quotas for EC2's vCPU limits, which moto doesn't know."""

from __future__ import annotations

from typing import Any

from moto.servicequotas.models import ServiceQuotasBackend

from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import (
    G_AND_VT_ON_DEMAND,
    G_AND_VT_SPOT,
    P_ON_DEMAND,
    STANDARD_ON_DEMAND,
    StrictRules,
)

NAMES = {
    G_AND_VT_ON_DEMAND: "Running On-Demand G and VT instances",
    G_AND_VT_SPOT: "All G and VT Spot Instance Requests",
    P_ON_DEMAND: "Running On-Demand P instances",
    STANDARD_ON_DEMAND: "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
}


def install(patches: Patches, rules: StrictRules) -> None:
    patches.replace(ServiceQuotasBackend, "get_service_quota", lambda stock: _get(stock, rules))


def _get(stock: Any, rules: StrictRules) -> Any:
    def get_service_quota(self: Any, service_code: str, quota_code: str) -> Any:
        if service_code != "ec2" or quota_code not in rules.vcpu_limits:
            return stock(self, service_code, quota_code)
        arn = f"arn:aws:servicequotas:{self.region_name}:{self.account_id}:ec2/{quota_code}"
        return {
            "ServiceCode": "ec2",
            "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "QuotaArn": arn,
            "QuotaCode": quota_code,
            "QuotaName": NAMES[quota_code],
            "Value": float(rules.vcpu_limits[quota_code]),
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }

    return get_service_quota
