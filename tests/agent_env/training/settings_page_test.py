"""docs/programs.md tells each setting of each program as the models have it."""

from __future__ import annotations

import pytest

from agent_env.training.config import CONFIGS
from tools.program_settings import DOCUMENT, meaning, with_tables


def test_the_pages_tables_are_those_that_the_models_make() -> None:
    text = DOCUMENT.read_text("utf-8")

    assert with_tables(text) == text, "make it anew: .venv/bin/python -m tools.program_settings"


@pytest.mark.parametrize("program", CONFIGS)
def test_every_setting_says_what_it_means(program: str) -> None:
    config = CONFIGS[program]

    assert all(meaning(config, name).endswith(".") for name in config.model_fields)


def test_what_a_program_redefines_without_a_word_means_what_it_did() -> None:
    assert meaning(CONFIGS["outage"], "steps") == meaning(CONFIGS["grpo"], "steps")
