"""Writes orchestrator/data/instances.json from a snapshot of EC2's own answers.

The snapshot is the one moto bundles (DescribeInstanceTypes and DescribeInstanceTypeOfferings),
so the table is generated, never typed. Run it after moto is upgraded:

    .venv/bin/python tools/build_instances.py
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import moto.ec2

FAMILIES = ("g6.", "g6e.")
PLAIN = ("t3.nano",)
"""No GPU: what `gpurun kill-proof` rents."""
G_AND_VT, STANDARD = "L-DB2E81BA", "L-1216C47A"
"""Running On-Demand G and VT, and Standard instances, in vCPUs per region."""

RESOURCES = Path(moto.ec2.__file__).parent / "resources"
TARGET = Path(__file__).resolve().parent.parent / "orchestrator" / "data" / "instances.json"


def main() -> None:
    TARGET.write_text(json.dumps(build(), indent=1, sort_keys=True) + "\n", "utf-8")


def build() -> dict[str, Any]:
    """The whole table: every region's name, and each type of the families with its zones."""
    zones = {path.name.split(".")[0]: list(_zones(path)) for path in _offerings()}
    described = _load(RESOURCES / "instance_types.json.gz")
    types = {
        name: _instance(name, facts, {region: _of(name, pairs) for region, pairs in zones.items()})
        for name, facts in described.items()
        if name.startswith(FAMILIES) or name in PLAIN
    }
    source = "EC2 DescribeInstanceTypes and DescribeInstanceTypeOfferings, as bundled in moto"
    return {"source": source, "regions": sorted(zones), "types": types}


def _offerings() -> list[Path]:
    return sorted((RESOURCES / "instance_type_offerings" / "availability-zone").iterdir())


def _zones(path: Path) -> Iterator[tuple[str, str]]:
    for row in _load(path):
        yield row["InstanceType"], row["Location"]


def _of(name: str, pairs: list[tuple[str, str]]) -> list[str]:
    return sorted(zone for kind, zone in pairs if kind == name)


def _instance(name: str, facts: dict[str, Any], zones: dict[str, list[str]]) -> dict[str, Any]:
    (gpu,) = facts["GpuInfo"]["Gpus"] if "GpuInfo" in facts else (None,)
    return {
        "name": name,
        "gpu": gpu["Name"] if gpu else "",
        "gpus": gpu["Count"] if gpu else 0,
        "gpu_memory_mib": gpu["MemoryInfo"]["SizeInMiB"] if gpu else 0,
        "vcpus": facts["VCpuInfo"]["DefaultVCpus"],
        "memory_gib": math.ceil(facts["MemoryInfo"]["SizeInMiB"] / 1024),
        "nvme_gb": facts.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        "network": facts["NetworkInfo"]["NetworkPerformance"],
        "quota_code": G_AND_VT if gpu else STANDARD,
        "zones": {region: names for region, names in zones.items() if names},
    }


def _load(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


if __name__ == "__main__":
    main()
