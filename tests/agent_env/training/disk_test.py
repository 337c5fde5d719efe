"""A full disk is known for what it is, and nothing else is taken for one."""

from __future__ import annotations

import errno
from collections import namedtuple
from pathlib import Path

import pytest

from agent_env.training.disk import full_disk

FULL = Path("/dev/full")
TORCH = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534\n at")
RUST = Exception("Error while serializing: I/O error: No space left on device (os error 28)")


def raised(path: Path) -> OSError:
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        path.write_text("x")
    return caught.value


def test_the_kernels_own_error_is_known_also_behind_another(tmp_path: Path) -> None:
    error = RuntimeError("could not save")
    error.__cause__ = raised(FULL)
    said = f"[Errno 28] No space left on device, writing to {tmp_path}"
    assert full_disk(error.__cause__, tmp_path) == full_disk(error, tmp_path) == said


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_the_kernels_number_is_enough_in_any_language(tmp_path: Path, number: int) -> None:
    error = OSError(number, "kein Platz", str(tmp_path / "model"))
    assert full_disk(error, tmp_path) == f"[Errno {number}] kein Platz: '{tmp_path / 'model'}'"


def test_a_library_that_has_only_words_is_understood(tmp_path: Path) -> None:
    assert str(full_disk(RUST, tmp_path)).endswith(f"(os error 28), writing to {tmp_path}")


@pytest.mark.parametrize(("free", "full"), [(0, True), (2**30, False)])
def test_torch_that_cant_say_why_is_believed_only_where_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, full: bool
) -> None:
    usage = namedtuple("usage", ["total", "used", "free"])
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(2**40, 0, free))
    assert (full_disk(TORCH, tmp_path) is not None) is full


def test_another_error_is_none_of_ours(tmp_path: Path) -> None:
    missing = raised(tmp_path / "none" / "there")
    assert full_disk(missing, tmp_path) is None
    assert full_disk(RuntimeError("CUDA out of memory"), tmp_path) is None
