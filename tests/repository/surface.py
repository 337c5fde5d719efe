"""What a person can type: the commands of both programs and the targets of the Makefile."""

from __future__ import annotations

import re
import subprocess

import typer.main
from typer.core import TyperGroup

from agent_env.cli import main as agent_env
from orchestrator.cli import app as gpurun

from .tree import ROOT


def commands() -> set[str]:
    """Every command as typed, those of a group by both words: `gpurun cloud start`."""
    programs = {"gpurun": gpurun, "agent-env": agent_env}
    return {
        found
        for name, program in programs.items()
        for found in _named(typer.main.get_command(program), name)
    }


def targets() -> set[str]:
    """Every target that `make help` lists."""
    command = ["make", "help"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"^  ([a-z-]+) ", listed, re.MULTILINE))


def _named(command: object, prefix: str) -> list[str]:
    if not isinstance(command, TyperGroup):
        return [prefix]
    inner = command.commands.items()
    return [found for name, child in inner for found in _named(child, f"{prefix} {name}")]
