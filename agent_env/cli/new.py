"""`agent-env new`: a folder with a working bundle, to be changed into one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_env.cli._told import told
from agent_env.starter import make


def new(name: Annotated[str, typer.Argument(help="The bundle's name, and its folder's.")]) -> None:
    """Make a folder with a bundle that works, passes `check` and has a test."""
    with told():
        files = make(name, Path())
    typer.echo(f"made {', '.join(str(file) for file in files)}")
    typer.echo(f"next: agent-env check {name}, then agent-env serve {name}")
