"""Why EC2 ended an instance: its code, and its words where the code alone says nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.aws.instances import record_of


@pytest.mark.parametrize(
    "code, message, told",
    [
        (
            "Client.InstanceInitiatedShutdown",
            "Client.InstanceInitiatedShutdown: Instance initiated shutdown",
            "Client.InstanceInitiatedShutdown",
        ),
        (
            "Client.UserInitiatedShutdown",
            "Client.UserInitiatedShutdown: User initiated shutdown",
            "Client.UserInitiatedShutdown",
        ),
        (
            "Server.SpotInstanceTermination",
            "Server.SpotInstanceTermination: Spot instance termination",
            "Server.SpotInstanceTermination",
        ),
        (
            "Client.VolumeLimitExceeded",
            "Volume limit exceeded",
            "Client.VolumeLimitExceeded: Volume limit exceeded",
        ),
        (
            "Client.InternalError",
            "Client.InternalError: Client error on launch",
            "Client.InternalError: Client error on launch; often the key that encrypts disks by "
            "default (EC2 settings, EBS encryption) may not be used by who launches",
        ),
    ],
)
def test_a_reason_says_what_to_do_something_about(code: str, message: str, told: str) -> None:
    instance: Any = {
        "InstanceId": "i-1",
        "InstanceType": "g6.xlarge",
        "LaunchTime": datetime(2026, 11, 29, tzinfo=UTC),
        "State": {"Name": "terminated"},
        "StateReason": {"Code": code, "Message": message},
    }
    assert record_of(instance).reason == told
