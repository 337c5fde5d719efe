"""SkyRL's rollouts keep what every trainer's helper promises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from .cases import Outcome, Script
from .suite import Conformance

pytestmark = [pytest.mark.skyrl, pytest.mark.filterwarnings("ignore")]


class TestSkyrl(Conformance):
    @staticmethod
    def driver(url: str, script: Script, folder: Path, *, timeout: float) -> Sequence[Outcome]:
        from .skyrl_driver import play  # noqa: PLC0415

        return play(url, script, folder, timeout=timeout)
