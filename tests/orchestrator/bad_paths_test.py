"""A path that no file system takes is refused in words, or is no path at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.document import read_document
from orchestrator.errors import RunbookError
from orchestrator.sources import _model_here

LONG = "a" * 300


def test_a_runbook_s_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunbookError, match="can't be read: File name too long"):
        read_document(tmp_path / LONG)


def test_a_model_s_name_that_is_too_long_is_no_folder_here(tmp_path: Path) -> None:
    assert _model_here(f"me/{LONG}", tmp_path) is None
