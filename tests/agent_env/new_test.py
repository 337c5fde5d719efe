"""`agent-env new`: what it makes works as it is, from the check to an episode on a server."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent_env import AgentEnv
from agent_env.bundle import load_bundle
from agent_env.cli import main
from agent_env.starter import EXAMPLE, FILES

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_a_new_bundle_passes_the_check_is_served_and_can_be_played(folder: Path) -> None:
    assert run("new", "word_game").output.splitlines() == [
        "made word_game/__init__.py, word_game/rules.py, word_game/word_game_test.py",
        "next: agent-env check word_game, then agent-env serve word_game",
    ]
    checked = run("check", "word_game", "--tasks", "8")
    assert (checked.exit_code, checked.output.split(";")[0]) == (0, "word_game: no fault")
    command = ["serve", "word_game", "--port", "0"]
    program = [sys.executable, "-c", "from agent_env.cli import main; main()", *command]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}, text=True, cwd=folder
    ) as served:
        try:
            assert served.stdout is not None
            said = re.search(r"on (http://127\.0\.0\.1:\d+)", served.stdout.readline())
            assert said is not None
            assert played(said[1]) == 1.0
        finally:
            served.send_signal(signal.SIGTERM)
            served.wait(20)


def played(url: str) -> float | None:
    """One episode, by somebody who halves what is left."""
    with AgentEnv(url) as env:
        assert env.splits == ("train", "eval")
        session = env.session()
        end = session.reset(split="eval", index=3)
        low, high = 1, 100
        while not end.done:
            middle = (low + high) // 2
            end = session.call_tool("ask", {"number": middle})
            if (end.model_extra or {})["result"]["data"] == "higher":
                low = middle + 1
            else:
                high = middle - 1
        return end.reward


def test_its_own_test_passes(folder: Path) -> None:
    run("new", "word_game")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "word_game"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "4 passed" in ended.stdout


def test_nothing_of_the_examples_name_is_left(folder: Path) -> None:
    run("new", "word_game")
    for path in (folder / "word_game").iterdir():
        assert "starter" not in path.read_text().lower()
    assert "class WordGame(Bundle):" in (folder / "word_game" / "__init__.py").read_text()
    assert {path.name for path in EXAMPLE.glob("*.py")} == set(FILES)


@pytest.mark.parametrize(
    "name, complaint",
    [
        ("Word", "can't be a bundle's name"),
        ("word-game", "can't be a bundle's name"),
        ("../word", "can't be a bundle's name"),
        ("1word", "can't be a bundle's name"),
        ("", "can't be a bundle's name"),
        ("class", "can't be a bundle's name"),
        ("w" * 41, "can't be a bundle's name"),
        ("gridsim", "is an installed bundle"),
        ("json", "'json' is a module that Python can import"),
        ("agent_env", "'agent_env' is a module that Python can import"),
        ("pytest", "'pytest' is a module that Python can import"),
        ("there", "there is there already; choose another name"),
    ],
)
def test_a_name_that_is_none_or_taken_is_refused_and_nothing_made(
    folder: Path, name: str, complaint: str
) -> None:
    (folder / "there").mkdir()
    ended = run("new", name)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert complaint in ended.stderr
    assert [path.name for path in folder.rglob("*")] == ["there"]


def test_an_endless_tool_of_a_new_bundle_stops_its_own_session_alone() -> None:
    run("new", "word_game")
    bundle = load_bundle("word_game")
    assert not type(bundle.open(bundle.tasks("train")[0])).quick


def test_a_folder_that_could_not_be_filled_is_taken_away_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES, "missing.py", "missing.py")
    assert run("new", "word_game").exit_code != 0
    assert list(folder.iterdir()) == []
