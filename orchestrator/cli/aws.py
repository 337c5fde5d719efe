"""`gpurun aws …`: what an AWS account has to allow before a run may spend anything there."""

from __future__ import annotations

import typer

aws_app = typer.Typer(help="A real AWS account: what it must allow.", no_args_is_help=True)


@aws_app.callback()
def aws_group() -> None:
    """Keeps the group a group while it has one command."""


@aws_app.command("policy")
def aws_policy() -> None:
    """Print the least IAM policy for the person who runs gpurun."""
    raise NotImplementedError
