"""The command: what it prints, and how it ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent_env import AgentEnv
from agent_env.cli import main
from agent_env.server.options import parse

from .conftest import COUNTER

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def refusal(*arguments: str) -> str:
    """The one line with which the command refuses."""
    ended = run(*arguments)
    assert ended.exit_code == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("agent-env: ")
    return line


def test_the_command_lists_splits_and_tasks() -> None:
    assert run("tasks", str(COUNTER)).output.splitlines()[0] == "train\t4 tasks"
    listed = run("tasks", str(COUNTER), "--split", "eval").output.splitlines()
    assert listed[1] == "1\teval-1\tcount to 20"


def test_a_split_that_does_not_exist_is_refused_with_those_that_do() -> None:
    line = refusal("tasks", str(COUNTER), "--split", "evil")
    assert line.endswith("did you mean 'eval'? there are: train, eval, turns")


def test_several_bundles_are_listed_as_they_are_served() -> None:
    lines = run("tasks", "inbox", str(COUNTER)).output.splitlines()
    assert (lines[0], lines[2]) == ("inbox/train\t300 tasks", "counter/train\t4 tasks")
    listed = run("tasks", "inbox", str(COUNTER), "--split", "counter/eval").output.splitlines()
    assert listed[1] == "1\teval-1\tcount to 20"
    assert "did you mean 'counter/eval'?" in refusal(
        "tasks", "inbox", str(COUNTER), "--split", "counter/evla"
    )


@pytest.mark.parametrize("command", ["serve", "tasks"])
def test_a_bundle_that_is_named_twice_is_refused(command: str) -> None:
    line = refusal(command, str(COUNTER), str(COUNTER))
    assert line.endswith("the bundle 'counter' is named twice: name each once")


@pytest.mark.parametrize("command", ["serve", "tasks"])
def test_a_bundle_s_name_that_is_mistyped_is_told_with_the_nearest(command: str) -> None:
    line = refusal(command, "gridsmi")
    assert "no bundle 'gridsmi'; did you mean 'gridsim'? installed: gridsim, inbox;" in line


@pytest.mark.parametrize("command", ["serve", "tasks"])
def test_an_unknown_bundle_is_refused_with_those_that_are_installed(command: str) -> None:
    assert "no bundle 'no-such-bundle'; installed:" in refusal(command, "no-such-bundle")


@pytest.mark.parametrize("ref", [":x", "json:", ":", "..json:x", "a b:c", "http://127.0.0.1:9"])
def test_half_a_reference_is_refused_with_what_a_whole_one_looks_like(ref: str) -> None:
    assert "isn't module:attribute, such as my_package.tasks:bundle" in refusal("tasks", ref)


@pytest.mark.parametrize("ref", ["", "x" * 5000, "a\0b"])
def test_what_can_not_be_a_name_is_no_bundle(ref: str) -> None:
    assert "no bundle" in refusal("tasks", ref)


@pytest.mark.parametrize(
    "raising, complaint",
    [
        ("TaskData(prompt=None)", "tasks('train') of mine: ValidationError: "),
        ("sys.exit(4)", "tasks('train') of mine: SystemExit: 4 ("),
    ],
)
def test_a_bundle_whose_tasks_raise_is_named_with_the_line(
    tmp_path: Path, raising: str, complaint: str
) -> None:
    (tmp_path / "__init__.py").write_text(
        "import sys\nfrom agent_env import Bundle, TaskData\n\nclass Mine(Bundle):\n"
        "    name, splits = 'mine', ('train',)\n    def tasks(self, split):\n"
        f"        {raising}\n\nbundle = Mine()\n"
    )
    for arguments in ([], ["--split", "train"]):
        ended = run("tasks", str(tmp_path), *arguments)
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert complaint in ended.stderr
        assert f"{tmp_path}/__init__.py:7)" in ended.stderr


@pytest.mark.parametrize("command", ["agent-env serve", "python -m agent_env.server"])
def test_both_ways_to_serve_have_the_same_options(command: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(["counter", "--max-sessions", "0"], prog=command)
    assert parse(["counter", "--port", "0"], prog=command).max_sessions == 64


@pytest.mark.parametrize("port", ["70000", "-1"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    assert "ports are 0 to 65535" in refusal("serve", str(COUNTER), f"--port={port}")


@pytest.mark.parametrize(
    "options, complaint",
    [
        (["--journal", ""], "--journal: it is empty"),
        (["--host", " "], "--host: it is empty"),
        (["--reward", ""], "--reward: it is empty"),
        (["--workers", "1000"], "--workers: 1000 is outside 1 to 256"),
        (["--max-sessions", "9" * 20], "is outside 1 to 100000"),
        (["--max-sessions", "1e3"], "'1e3' is no whole number above 0"),
        (["--workers", "1", "--worker-memory-mb", "9" * 20], "is outside 1 to 16777216"),
        (["--workers", "1", "--worker-memory-mb", "10"], "needs"),
        (["--reward", "nope"], "the reward is 'nope', the task recorded: near"),
        (["--reward", "nope", "--workers", "2"], "the reward is 'nope'"),
    ],
)
def test_what_a_server_could_not_serve_with_is_refused_before_it_listens(
    options: list[str], complaint: str
) -> None:
    command = [sys.executable, "-m", "agent_env.server", str(COUNTER), "--port=0", *options]
    ended = subprocess.run(
        command, capture_output=True, env={"PYTHONPATH": str(ROOT)}, text=True, timeout=30
    )
    assert ended.returncode != 0
    assert ended.stdout == ""
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_server_says_where_it_keeps_its_journal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agent_env.server", str(COUNTER), "--port=0"]
    with subprocess.Popen(
        [*command, "--journal", str(tmp_path / "j"), "--reward", "mean"],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT)},
        text=True,
    ) as served:
        assert served.stdout is not None
        said = served.stdout.readline()
        served.kill()
    assert said.endswith(f", 64 sessions at most, journal in {tmp_path / 'j'}\n")


def test_a_port_in_use_is_refused_with_the_way_round() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal("serve", str(COUNTER), "--port", str(port))
    assert line.endswith(f"port {port} of 127.0.0.1: it is in use; port 0 takes a free one")


def test_an_address_of_another_machine_is_refused() -> None:
    line = refusal("serve", str(COUNTER), "--port", "0", "--host", "192.0.2.1")
    assert "Cannot assign requested address" in line


def test_the_help_is_plain_text() -> None:
    for arguments in (["--help"], ["serve", "--help"]):
        assert run(*arguments).output.isascii()


def test_the_command_serves_until_it_is_interrupted() -> None:
    program = "from agent_env.cli import main; main()"
    command = [sys.executable, "-c", program, "serve", str(COUNTER), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}, text=True
    ) as served:
        assert served.stdout is not None
        said = re.search(r"on (http://127\.0\.0\.1:\d+), 64 sessions", served.stdout.readline())
        assert said is not None
        with AgentEnv(said[1]) as env:
            assert env.splits == ("train", "eval", "turns")
        served.send_signal(signal.SIGINT)
        assert served.wait(10) in (0, 130, -signal.SIGINT)
