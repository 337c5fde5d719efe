"""aws/amazon-sagemaker-examples#588: what are the two minutes after SIGTERM good for?

There: a job is told to end two minutes before it is taken away. Nobody knows whether that is time
to upload, and what goes first when it isn't enough.
Here: a hundredth of 2 GB is dirty when 120 s are left, over a line that takes a hundredth of what
it should. Every byte that leaves is counted: the adapter that a run can go on from and the metrics
are in before a ninth of the bytes are, what is huge comes last, and what is in is committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.box import scan, sync
from tests.incidents.desks import cloud, desk, shared_cloud
from tests.orchestrator.box.desk import Desk

__all__ = ["cloud", "desk", "shared_cloud"]

GRACE_S, BYTES_A_SECOND = 120.0, 30_000
DIRTY = {
    "out/checkpoint-80/adapter_model.safetensors": 1_300_000,
    "out/checkpoint-80/trainer_state.json": 2,
    "out/adapter.safetensors": 600_000,
    "out/checkpoint-70/adapter_model.safetensors": 1_300_000,
    "out/checkpoint-70/trainer_state.json": 2,
    "out/rollouts.parquet": 12_000_000,
}
METRICS_BYTES, LOG_BYTES = 30_000, 5_000_000


@pytest.fixture
def dirty(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(scan, "SMALL", 320_000)  # a hundredth, as all here
    monkeypatch.setattr(sync, "STREAMS", 1)
    for name, size in DIRTY.items():
        desk.write(name, b"{}" + name.encode() * (size // len(name)))
    (desk.folder / "metrics.jsonl").write_bytes(b"{}\n" * (METRICS_BYTES // 3))
    (desk.folder / "log.txt").write_bytes(b"tqdm\r" * (LOG_BYTES // 5))
    return desk


def test_adapter_and_metrics_are_in_long_before_the_log_and_what_is_huge(
    dirty: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, int]] = []
    upload = dirty.store.upload

    def counted(key: str, path: Path, sha256: str, size: int, **how: Any) -> None:
        sent.append((path.name, size))
        upload(key, path, sha256, size, **how)

    def taken_s() -> float:
        return sum(size for _, size in sent) / BYTES_A_SECOND

    monkeypatch.setattr(dirty.store, "upload", counted)
    late = dirty.sync(final=True, outcome="cut", time_is_up=lambda: taken_s() >= GRACE_S)
    assert not late.whole
    order = [name for name, size in sent if size > 1000]
    assert order[:2] == ["metrics.jsonl", "adapter_model.safetensors"]
    first = sum(size for _, size in sent[: 1 + [n for n, _ in sent].index("adapter.safetensors")])
    assert first < (sum(DIRTY.values()) + METRICS_BYTES + LOG_BYTES) / 9
    assert {"metrics.jsonl", *DIRTY} - {"out/rollouts.parquet"} <= dirty.listed(1)
    assert "out/rollouts.parquet" not in dirty.listed(1)
    assert dirty.complete() == {}
