"""The commands: what they print, how they end, and that a killed one loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent_env.cli import main
from agent_env.client.local import LocalServer
from agent_env.evaluation.results import comparable, read_results

from ..conftest import eventually

ROOT = Path(__file__).parents[3]
COUNTER = ROOT / "tests" / "agent_env" / "counter"

SCRIPT = """
import threading
from pathlib import Path

def play(history):
    '''Adds up to the target, but for one task, where the environment breaks.'''
    if history.task.index == 2 and Path("broken").exists():
        return "crash", {}
    if history.calls == 0:
        return "add", {"n": 10 * (history.task.index + 1) - history.attempt}
    return "commit", {}

def lazy(history):
    return "nothing"

def stalls(history):
    '''The same, but never ends the fourth attempt and those after it.'''
    if history.attempt >= 3 and Path("stalls").exists():
        threading.Event().wait()
    return play(history)
"""

LAZY = "scripted:somebodys_policy:lazy"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with somebody's policy in it."""
    (tmp_path / "somebodys_policy.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("somebodys_policy", None)


def evaluates(
    target: str, *options: str, policy: str = "scripted:somebodys_policy:play"
) -> Result:
    chosen = ["--split", "eval", "--policy", policy, "--concurrency", "4"]
    return run("eval", target, *chosen, *options)


def test_an_eval_prints_a_table_and_keeps_the_attempts(server: LocalServer) -> None:
    done = evaluates(server.url, "--attempts", "2", "--concurrency", "3", "--out", "r.jsonl")
    assert done.exit_code == 0, done.output
    assert "counter " in done.stdout
    assert "scored 8 of 8 attempts" in done.stdout
    assert "writing r.jsonl" in done.stderr
    header, rows = read_results(Path("r.jsonl"))
    assert (header.env, header.attempts, len(rows)) == ("counter", 2, 8)
    assert rows[0].scores == {"near": 1.0}


def test_unscored_attempts_are_told_and_alone_are_played_again(server: LocalServer) -> None:
    Path("broken").touch()
    done = evaluates(server.url, "--attempts", "2")
    assert done.exit_code == 1
    assert "scored 6 of 8 attempts" in done.stdout
    assert "unscored 2: EnvError, such as eval-2 attempt 0: " in done.stdout
    path = Path("counter-eval-scripted-somebodys_policy-play.jsonl")
    before = path.read_bytes()
    Path("broken").unlink()
    again = evaluates(server.url, "--attempts", "2")
    assert again.exit_code == 0
    assert "6 of 8 are there already" in again.stderr
    assert "played again after being unscored: 2" in again.stdout
    content = path.read_bytes()
    assert content.startswith(before)
    assert len(content[len(before) :].splitlines()) == 2


def rows_in(name: str) -> int:
    return Path(name).read_bytes().count(b"\n") - 1 if Path(name).exists() else 0


@pytest.mark.slow
def test_a_killed_eval_goes_on_with_exactly_what_is_missing() -> None:
    command = [sys.executable, "-c", "from agent_env.cli import main; main()", "eval"]
    command += [str(COUNTER), "--split", "eval", "--policy", "scripted:somebodys_policy:stalls"]
    command += ["--attempts", "5", "--concurrency", "4", "--out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    Path("stalls").touch()
    with subprocess.Popen([*command, "cut.jsonl"], env=environment) as killed:
        eventually(lambda: rows_in("cut.jsonl") == 12)
        killed.kill()
    before = Path("cut.jsonl").read_bytes()
    with Path("cut.jsonl").open("ab") as file:
        file.write(b'{"task": "torn')
    Path("stalls").unlink()
    subprocess.run([*command, "cut.jsonl"], env=environment, check=True, capture_output=True)
    subprocess.run([*command, "whole.jsonl"], env=environment, check=True, capture_output=True)
    content = Path("cut.jsonl").read_bytes()
    assert content.startswith(before)
    played = [json.loads(line) for line in content[len(before) :].splitlines()]
    assert sorted((row["index"], row["attempt"]) for row in played) == [
        (index, attempt) for index in range(4) for attempt in (3, 4)
    ]
    _, resumed = read_results(Path("cut.jsonl"))
    _, whole = read_results(Path("whole.jsonl"))
    assert comparable(resumed) == comparable(whole)


FRAGILE = """
import os
from agent_env import Bundle, Task, TaskData, tool

class Fragile(Task):
    @tool
    def touch(self) -> str:
        'Touch it.'
        if self.data.index == 2:
            os.abort()
        return 'whole'

    def score(self):
        return {'kept': 1.0}

class FragileBundle(Bundle):
    name, splits = 'fragile', ('all',)

    def tasks(self, split):
        return [
            TaskData(id=f't{n}', name='t', split=split, index=n, prompt='Touch.') for n in range(6)
        ]

    def open(self, data):
        return Fragile(data)

bundle = FragileBundle()
"""


@pytest.mark.slow
def test_a_task_that_takes_its_server_down_is_lost_alone() -> None:
    Path("fragile").mkdir()
    Path("fragile/__init__.py").write_text(FRAGILE)
    Path("touching.py").write_text(
        "def play(history): return ('touch', {}) if history.calls < 2 else 'done'"
    )
    chosen = ["--split", "all", "--policy", "scripted:touching:play", "--concurrency", "3"]
    done = run("eval", "fragile", *chosen, "--attempts", "2", "--out", "r.jsonl")
    assert (done.exit_code, "scored 10 of 12 attempts" in done.stdout) == (1, True), done.output
    _, rows = read_results(Path("r.jsonl"))
    assert {(row.index, row.code) for row in rows if row.reward is None} == {(2, "SessionLost")}


def test_an_interrupted_eval_says_how_to_go_on() -> None:
    command = [sys.executable, "-c", "from agent_env.cli import main; main()", "eval"]
    command += [str(COUNTER), "--split", "eval", "--policy", "scripted:somebodys_policy:stalls"]
    Path("stalls").touch()
    with subprocess.Popen(
        [*command, "--attempts", "4", "--out", "r.jsonl"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        # Tests that a shell runs in the background hand down that SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        eventually(lambda: rows_in("r.jsonl") == 12)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=20)
    assert running.returncode == 130
    assert said.splitlines()[-1] == "agent-env: interrupted; the same command goes on"


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["no-such-bundle", "--split", "eval"], "no bundle 'no-such-bundle'"),
        (
            [str(COUNTER), "--split", "evil"],
            "no split 'evil'; did you mean 'eval'? there are: train, eval, turns",
        ),
        ([str(COUNTER)], "--split is missing; "),
        ([str(COUNTER)], " has: train, eval, turns"),
        (
            [str(COUNTER), "--split", "eval", "--policy", "expret"],
            "no policy 'expret'; did you mean 'expert'? there are: expert, random:SEED",
        ),
        ([str(COUNTER), "--split", "eval", "--policy", "best"], "no policy 'best'; there are:"),
        ([str(COUNTER), "--split", "eval", "--policy", "expert"], "counter has no expert"),
        ([str(COUNTER), "--split", "eval", "--tasks", "9"], "--tasks 9: the split eval has 4"),
        ([str(COUNTER), "--split", "eval", "--sampling", "[]"], "--sampling is a JSON object"),
        ([str(COUNTER), "--split", "eval", "--sampling", "{"], "--sampling is no JSON"),
        (
            [str(COUNTER), "--split", "eval", "--sampling", '{"temperature": NaN}'],
            "--sampling is no JSON: NaN",
        ),
        ([str(COUNTER), "--split", "eval", "--threshold", "nan"], "--threshold nan: give a"),
        ([str(COUNTER), "--split", "eval", "--threshold", "inf"], "--threshold inf: give a"),
        ([str(COUNTER), "--split", "eval", "--key-env", "NO_KEY"], "NO_KEY: there is no such"),
        ([str(COUNTER), "--split", "eval", "--out", "no/r.jsonl"], "no/r.jsonl can't be written"),
        (["http://127.0.0.1:9", "--split", "eval"], "can't be reached"),
        (["ftp://127.0.0.1", "--split", "eval"], "address is like http://"),
        (
            ["http://127.0.0.1:9", "--split", "eval", "--reward", "near"],
            "give it to agent-env serve",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_not_be_is_refused_before_anything_is_made(
    arguments: list[str], complaint: str
) -> None:
    policy = [] if "--policy" in arguments else ["--policy", "random:0"]
    done = run("eval", *arguments, *policy)
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("agent-env: ")
    assert complaint in line
    assert list(Path().glob("*.jsonl")) == []


def test_a_split_that_a_server_lacks_is_told_with_the_nearest(server: LocalServer) -> None:
    wrong = run("eval", server.url, "--split", "evla", "--policy", "random:0")
    assert wrong.exit_code == 2
    assert "no split 'evla'; did you mean 'eval'? there are: train, eval, turns" in wrong.stderr
    none = run("eval", server.url, "--policy", "random:0")
    assert f"--split is missing; {server.url} has: train, eval, turns" in none.stderr


@pytest.mark.parametrize("command", ["replay FILE", "compare FILE FILE", "export FILE"])
def test_a_results_file_that_is_not_there_is_told_with_those_that_are(command: str) -> None:
    words = command.replace("FILE", "expret.jsonl").split()
    words += ["--min-reward", "1"] if words[0] == "export" else []
    said = run(*words)
    assert (said.exit_code, said.stdout) == (2, "")
    assert f"expret.jsonl isn't there, and no .jsonl file is in {Path.cwd()}" in said.stderr
    for name in ("expert.jsonl", "lazy.jsonl"):
        Path(name).touch()
    near = f"did you mean 'expert.jsonl'? in {Path.cwd()} are: expert.jsonl, lazy.jsonl"
    assert near in run(*words).stderr
    assert f"no folder {Path.cwd() / 'nowhere'}" in run("replay", "nowhere/r.jsonl").stderr


def test_an_export_of_a_bundle_without_a_split_is_told_which_it_has() -> None:
    said = run("export", str(COUNTER), "--min-reward", "1").stderr
    assert "of the bundle give --split: train, eval, turns" in said
    said = run("export", "a" * 300, "--min-reward", "1").stderr
    assert said.startswith("agent-env: no bundle 'aaa")


def test_a_reward_that_no_task_has_is_refused_before_anything_is_made() -> None:
    done = evaluates(str(COUNTER), "--reward", "nosuch")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the reward is 'nosuch', the task recorded: near" in done.stderr
    assert list(Path().glob("*.jsonl")) == []
    assert evaluates(str(COUNTER), "--reward", "near").exit_code == 0


def test_a_server_with_too_few_sessions_is_told_before_anything_is_made(
    server: LocalServer,
) -> None:
    done = evaluates(server.url, "--attempts", "2", "--concurrency", "5")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the server has 4: " in done.stderr
    assert done.stderr.startswith(
        "agent-env: --concurrency 5 doesn't fit: give a smaller one or make room. 5 rollouts"
    )
    assert list(Path().glob("*.jsonl")) == []


def test_the_expert_of_an_installed_bundle_plays_on_a_server() -> None:
    with LocalServer("gridsim", max_sessions=4) as server:
        options = ["--split", "coarse-eval", "--policy", "expert", "--tasks", "6"]
        done = run("eval", server.url, *options, "--concurrency", "4", "--threshold", "0.9999")
        assert done.exit_code == 0, done.output
    assert "pass@1                 1.0000   reward ≥ 0.9999" in done.stdout
    assert Path("gridsim-coarse-eval-expert.jsonl").exists()


def test_the_expert_plays_on_a_server_of_several_bundles_and_is_compared() -> None:
    expert = ["--policy", "expert", "--tasks", "2", "--concurrency", "2"]
    with LocalServer(["inbox", "gridsim"], max_sessions=2) as server:
        for split in ("inbox/eval", "gridsim/eval"):
            done = run("eval", server.url, "--split", split, *expert, "--threshold", "0.99")
            assert (done.exit_code, "pass@1                 1.0000" in done.stdout) == (0, True)
    alone = ["--split", "eval", "--out", "alone.jsonl"]
    assert run("eval", "inbox", *alone, *expert).exit_code == 0
    compared = run("compare", "inbox-inbox-eval-expert.jsonl", "alone.jsonl")
    assert (compared.exit_code, "equal 2" in compared.stdout) == (0, True)


def test_two_files_are_compared_and_others_refused(server: LocalServer) -> None:
    evaluates(server.url, "--out", "a.jsonl")
    evaluates(server.url, "--out", "b.jsonl", policy=LAZY)
    done = run("compare", "a.jsonl", "b.jsonl")
    assert done.exit_code == 0
    assert "B − A, paired" in done.stdout
    run("eval", server.url, "--split", "train", "--policy", LAZY, "--out", "c.jsonl")
    refused = run("compare", "a.jsonl", "c.jsonl")
    assert (refused.exit_code, "split is 'eval' in the first" in refused.stderr) == (2, True)


def test_a_rollout_is_shown(server: LocalServer) -> None:
    evaluates(server.url, "--out", "a.jsonl")
    assert run("replay", "a.jsonl").stdout.splitlines()[1].startswith("eval-1\tattempt 0\t1.0000")
    assert "-> add(n=20)\n" in run("replay", "a.jsonl", "eval-1").stdout
    refused = run("replay", "a.jsonl", "eval-7")
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_good_rollouts_are_exported(server: LocalServer) -> None:
    evaluates(server.url, "--out", "a.jsonl", "--attempts", "2")
    done = run("export", "a.jsonl", "--min-reward", "1", "--out", "sft.jsonl")
    assert (done.exit_code, done.stderr) == (0, "4 of 8 attempts\n")
    first = json.loads(Path("sft.jsonl").read_text().splitlines()[0])
    assert [message["role"] for message in first["messages"]][:3] == [
        "system",
        "user",
        "assistant",
    ]
    assert first["tools"][0]["function"]["name"] == "add"
    refused = run("export", "a.jsonl", "--min-reward", "2", "--out", "none.jsonl")
    assert (refused.exit_code, Path("none.jsonl").exists()) == (2, False)


def test_an_export_takes_the_place_of_an_earlier_one_and_of_nothing_else(
    server: LocalServer,
) -> None:
    evaluates(server.url, "--out", "a.jsonl")
    Path("notes.txt").write_text("mine")
    Path("link.jsonl").symlink_to("a.jsonl")
    before = Path("a.jsonl").read_bytes()
    for out, complaint in (
        ("a.jsonl", "a.jsonl is what is exported; name another file"),
        ("link.jsonl", "link.jsonl is what is exported; name another file"),
        ("notes.txt", "notes.txt is there and no earlier export; name another file"),
        ("/dev/null", "/dev/null is there and no earlier export"),
        (".", ". is there and no earlier export"),
        ("no/sft.jsonl", "there is no folder no"),
    ):
        refused = run("export", "a.jsonl", "--min-reward", "0", "--out", out)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert complaint in refused.stderr
    assert Path("a.jsonl").read_bytes() == before
    assert Path("notes.txt").read_text() == "mine"
    for least, kept in (("0", 4), ("1", 4)):
        assert run("export", "a.jsonl", "--min-reward", least, "--out", "sft").exit_code == 0
        assert len(Path("sft").read_text().splitlines()) == kept
    refused = run("export", "gridsim", "--split", "eval", "--min-reward", "1", "--out", "a.jsonl")
    assert "a.jsonl is there and no earlier export" in refused.stderr
    assert "--min-reward nan: give a number" in run("export", "a", "--min-reward", "nan").stderr
    assert {path.name for path in Path().iterdir()} >= {"a.jsonl", "sft", "notes.txt"}
    assert [path.name for path in Path().iterdir() if "partial" in path.name] == []


def test_an_experts_rollouts_are_exported() -> None:
    done = run("export", "gridsim", "--split", "coarse-eval", "--min-reward", "0.9")
    assert done.stderr == "96 of 96 attempts\n"
    assert len(done.stdout.splitlines()) == 96
    assert "of the bundle give --split" in run("export", "gridsim", "--min-reward", "1").stderr
