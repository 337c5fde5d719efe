"""The most of a GPU's memory that was taken when it was looked at, and nothing without a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent_env.training.gpu_memory import GpuMemory, used

pytestmark = pytest.mark.trl

TOTAL = 24_152_000_000


def test_what_is_taken_is_what_is_not_free() -> None:
    assert used(free=2_152_000_000, total=TOTAL) == 22_000_000_000


def test_the_most_since_the_last_time_is_told_in_gb_of_a_thousand_million_bytes() -> None:
    free = iter([4_152_000_000, 2_152_000_000, 9_152_000_000, 14_152_000_000])
    memory = GpuMemory(lambda: (next(free), TOTAL))
    for _ in range(3):
        memory.look()
    assert memory.take() == {"gpu_gb": 22.0}
    memory.look()
    assert memory.take() == {"gpu_gb": 10.0}


def test_on_a_cpu_no_number_is_told() -> None:
    memory = GpuMemory()
    memory.look()
    assert memory.take() == {}


def test_the_reader_asks_the_device_only_when_one_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: True, mem_get_info=lambda: (1, 3))
    monkeypatch.setattr("torch.cuda", cuda)
    memory = GpuMemory()
    memory.look()
    assert memory.take() == {"gpu_gb": 2e-9}
