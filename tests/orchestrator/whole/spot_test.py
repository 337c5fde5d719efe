"""A spot box that is taken away in mid-training: told, drained, gone; its job ends elsewhere."""

from __future__ import annotations

import json
import urllib.request

import pytest

from .conftest import Desk, run_id_in

RUNBOOK = """
name: spot
cap_usd: 3
regions: [us-east-1]
loss_bound: 1h
pins: none
boxes:
  l4: {instance: g6.4xlarge, hours: 0.1, drain: 30s, cloud_margin: 60s, spot: true}
jobs:
  train:
    box: l4
    command: python3 trainer.py --steps 300
    workdir: project
    results: [out]
    hours: 0.05
"""
TOTAL = b"44850\n"  # the sum of 0 to 299


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_job_whose_spot_box_is_taken_away_goes_on_from_its_very_last_step(desk: Desk) -> None:
    run_id = run_id_in(desk.gpurun("up", desk.write_runbook(RUNBOOK), "--detach"))
    begun = "until grep -qs 'step 20 ' /opt/gpurun/jobs/train/log.txt; do sleep 0.1; done"
    desk.gpurun("ssh", run_id, "l4", "--", begun)
    instance = desk.json("status", run_id)["boxes"][0]["instance_id"]
    url = desk.json("cloud", "status")["url"] + "/_gpurun/spot"
    asked = json.dumps({"instance": instance, "seconds": 30}).encode()
    urllib.request.urlopen(urllib.request.Request(url, data=asked, method="POST"), timeout=10)
    desk.gpurun("resume", run_id)

    home = desk.folder / "results" / run_id / "train"
    assert (home / "out" / "weights.txt").read_bytes() == TOTAL
    steps = [int(line.split()[1]) for line in (home / "log.txt").read_text().splitlines()]
    assert steps == list(range(1, 301)), "no step was lost, none was done twice"
    status = desk.json("status", run_id)
    assert status["jobs"][0]["attempt"] == 2
