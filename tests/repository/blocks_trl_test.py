"""The Python of docs/ that trains, run with a tiny model in place of the page's."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_env import AgentEnv
from agent_env.training import models, tiny
from agent_env.training.demonstrations import tools_of

from .following import follow, followed, runs_here, shortened

# The trainer warns of what a page's reader sees as well.
pytestmark = [
    pytest.mark.trl,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore"),
]

PAGES = followed("trl")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned nothing, saved where a trainer can load it."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    with AgentEnv.local("gridsim") as env:
        rows = env.rows("coarse-train")[:8]
        tokenizer = tiny.build_tokenizer([row["prompt"] for row in rows], tools_of(env.factory()))
    models.save_model(tiny.build_model(tokenizer), tokenizer, folder)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_the_page_can_be_followed(
    page: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert follow(PAGES[page], "trl", tmp_path, lambda text: shortened(text, model))
    run = [block.text for block in PAGES[page] if runs_here(block, "trl")]
    if any("[metrics]" in text for text in run):
        assert "env/tool_calls" in capsys.readouterr().out
