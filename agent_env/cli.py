"""`agent-env`: serve a bundle, list its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from agent_env.bundle import Bundle, load_bundle
from agent_env.errors import AgentEnvError, TaskNotFound

main = typer.Typer(
    name="agent-env",
    help="Environments to train agents on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

BundleRef = Annotated[str, typer.Argument(help="A bundle's name, module:attribute, or a folder.")]


@main.command()
def serve(
    bundle: BundleRef,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8000,
    max_sessions: Annotated[int, typer.Option(min=1, help="Sessions at one time.")] = 64,
) -> None:
    """Serve a bundle until interrupted."""
    # The server's packages load in 0.3 s: only the command that serves pays for them.
    from agent_env.server import build_app  # noqa: PLC0415
    from agent_env.server.process import run  # noqa: PLC0415

    def announce(bound: int) -> None:
        typer.echo(f"serving {bundle} on http://{host}:{bound}, {max_sessions} sessions at most")

    with _told():
        app = build_app(load_bundle(bundle), max_concurrent_envs=max_sessions)
        run(app, host=host, port=port, announce=announce)


@main.command()
def tasks(
    bundle: BundleRef,
    split: Annotated[str | None, typer.Option(help="Only this split, with its tasks.")] = None,
) -> None:
    """List a bundle's splits, or the tasks of one."""
    with _told():
        _list(load_bundle(bundle), split)


def _list(found: Bundle, split: str | None) -> None:
    if split is None:
        for name in found.splits:
            typer.echo(f"{name}\t{len(found.tasks(name))} tasks")
        return
    if split not in found.splits:
        raise TaskNotFound(f"no split {split!r}; there are: {', '.join(found.splits)}")
    for task in found.tasks(split):
        typer.echo(f"{task.index}\t{task.id}\t{task.name}")


@contextmanager
def _told() -> Iterator[None]:
    """An error of ours becomes one line and exit code 2."""
    try:
        yield
    except AgentEnvError as error:
        typer.echo(f"agent-env: {error}", err=True)
        raise typer.Exit(2) from None
