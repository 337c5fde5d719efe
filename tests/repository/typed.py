"""Command lines as a page shows them: does what they name exist? Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import typer.main

from agent_env.cli import main as agent_env
from orchestrator.cli import app as gpurun

from .blocks import Block
from .surface import targets
from .tree import ROOT

PROGRAMS = {"gpurun": gpurun, "agent-env": agent_env}
OURS = ("agent_env", "orchestrator", "benchmarks", "tests", "tools", "runbooks")
ORDINARY = frozenset(
    {".", "apt-get", "bash", "cat", "cd", "cp", "curl", "docker", "export", "git", "grep", "ls"}
    | {"mkdir", "nvidia-smi", "pip", "ray", "rm", "sudo", "tail", "uv", "watch"}
)
"""Programs that aren't ours: their names are all that is looked at."""

_AND_THEN = frozenset({"&&", "||", "|", ";", "&"})
_ASSIGNED = re.compile(r"[A-Z_][A-Z0-9_]*=")
_INTO = re.compile(r"^\d?>>?$|^<$|^\d?>>?\S|^2>&1$")


def lines(block: Block) -> Iterator[str]:
    """What somebody types: all of `sh`, what follows `$ ` in `console`."""
    typed = block.text.replace("\\\n", " ").splitlines()
    if block.kind == "console":
        typed = [line[2:] for line in typed if line.startswith("$ ")]
    yield from (line for line in typed if line.strip() and not line.lstrip().startswith("#"))


def fault(line: str) -> str | None:
    """What of the line doesn't exist; None when all of it does."""
    for words in _commands(line):
        if (wrong := _wrong(words)) is not None:
            return wrong
    return None


def _commands(line: str) -> Iterator[list[str]]:
    """The line's commands, in words, without variables before them and files behind."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in _AND_THEN:
            if words:
                yield words
            words = []
        elif (words or not _ASSIGNED.match(word)) and not _INTO.match(word):
            words.append(word)


def _wrong(words: list[str]) -> str | None:
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program == "make":
        return _wrong_target(rest)
    if program in PROGRAMS:
        return _wrong_option(typer.main.get_command(PROGRAMS[program]), program, rest)
    if program.startswith("python"):
        return _wrong_module(rest)
    return None if program in ORDINARY else f"no program {program!r} is known"


def _wrong_target(words: list[str]) -> str | None:
    for word in words:
        name, assigned, _ = word.partition("=")
        if assigned and name not in _variables():
            return f"the Makefile has no variable {name}"
        if not assigned and name not in targets():
            return f"the Makefile has no target {name}"
    return None


def _wrong_option(command: Any, name: str, words: list[str]) -> str | None:
    """The command's own parser decides; it is not called."""
    while hasattr(command, "commands"):
        if not words or words[0] not in command.commands:
            return f"{name} has no command {words[0] if words else ''!r}"
        command, name, words = command.commands[words[0]], f"{name} {words[0]}", words[1:]
    try:
        command.make_context(name, list(words))
    except SystemExit:  # --help and --version print and end
        return None
    except Exception as error:
        return f"{name}: {error}"
    return None


def _wrong_module(words: list[str]) -> str | None:
    if words[:1] != ["-m"]:
        return None
    module = words[1]
    ours = module.split(".")[0] in OURS
    return f"no module {module}" if ours and find_spec(module) is None else None


@cache
def _variables() -> frozenset[str]:
    """What a person may set: the names with a default, and those a rule asks for."""
    text = (ROOT / "Makefile").read_text("utf-8")
    return frozenset(re.findall(r"^([A-Z_]+) \?=", text, re.MULTILINE))
