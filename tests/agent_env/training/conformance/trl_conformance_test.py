"""TRL's GRPOTrainer, and Unsloth's arguments for it, keep what every trainer's helper promises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from .cases import Outcome, Script
from .suite import Conformance

pytestmark = [pytest.mark.trl, pytest.mark.filterwarnings("ignore")]


class TestTrl(Conformance):
    @staticmethod
    def driver(url: str, script: Script, folder: Path, *, timeout: float) -> Sequence[Outcome]:
        from .trl_driver import play  # noqa: PLC0415

        return play(url, script, folder, timeout=timeout)


class TestUnsloth(Conformance):
    """Unsloth's trainer is TRL's, rewritten on a GPU: here TRL's with all that is spelled out."""

    @staticmethod
    def driver(url: str, script: Script, folder: Path, *, timeout: float) -> Sequence[Outcome]:
        from trl import GRPOConfig  # noqa: PLC0415

        from agent_env.training.unsloth import spelled_out  # noqa: PLC0415

        from .trl_driver import play  # noqa: PLC0415

        def config(**arguments: Any) -> Any:
            return GRPOConfig(**spelled_out(arguments))

        return play(url, script, folder, timeout=timeout, config=config)
