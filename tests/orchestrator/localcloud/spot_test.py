"""Spot instances of the local cloud: notice in the metadata, then the end."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.orchestrator.localcloud.conftest import LocalCloud

pytestmark = pytest.mark.slow
SPOT = {
    "MarketType": "spot",
    "SpotOptions": {
        "SpotInstanceType": "one-time",
        "InstanceInterruptionBehavior": "terminate",
    },
}
ASK = """
python3 -c 'from box import *
import time
path = "meta-data/spot/instance-action"
first = metadata_status(path)
report(first=first)
while metadata_status(path) != 200: time.sleep(0.1)
report(first=first, life_cycle=metadata("meta-data/instance-life-cycle"), said=metadata(path))'
sleep 1000
"""


def give(cloud: LocalCloud, **asked: Any) -> dict[str, Any]:
    body = json.dumps(asked).encode()
    request = urllib.request.Request(cloud.state.url + "/_gpurun/spot", data=body, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        said: dict[str, Any] = json.load(answer)
    return said


def test_a_spot_instance_is_told_and_then_taken(cloud: LocalCloud) -> None:
    box = cloud.launch(ASK, InstanceMarketOptions=SPOT)
    assert cloud.look(box)["InstanceLifecycle"] == "spot"
    assert cloud.report() == {"first": 404}
    taken_at = datetime.fromisoformat(give(cloud, instance=box, seconds=6)["taken_at"])
    assert give(cloud, instance=box)["taken_at"] == taken_at.isoformat()
    report = cloud.report()
    assert report["life_cycle"] == "spot"
    said = json.loads(report["said"])
    assert said["action"] == "terminate"
    told = datetime.strptime(said["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert abs((told - taken_at).total_seconds()) < 1
    assert cloud.is_in(box, "running")
    ended = cloud.wait(box, "terminated")
    assert ended["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert datetime.now(UTC) >= taken_at


def test_only_a_running_spot_instance_can_be_given_notice(cloud: LocalCloud) -> None:
    box = cloud.launch("sleep 1000")
    assert "InstanceLifecycle" not in cloud.look(box)
    for asked in ({"instance": box}, {"instance": "i-0"}, {}, {"instance": box, "seconds": "x"}):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            give(cloud, **asked)
    cloud.terminate(box)
