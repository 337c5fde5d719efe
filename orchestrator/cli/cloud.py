"""`gpurun cloud …`: the local cloud."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.errors import CloudError, NotConfirmed

if TYPE_CHECKING:
    from orchestrator.localcloud.state import CloudState

cloud_app = typer.Typer(help="The local cloud: an AWS to rehearse on.", no_args_is_help=True)


@cloud_app.command("start")
def cloud_start(as_json: Json = False) -> None:
    """Start the local cloud, or find the one that runs."""
    from orchestrator.localcloud import process  # noqa: PLC0415
    from orchestrator.settings import Settings  # noqa: PLC0415

    _print_cloud(process.start(Settings().home), as_json=as_json)


@cloud_app.command("status")
def cloud_status(as_json: Json = False) -> None:
    """Say whether the local cloud runs, and where; exits with 15 when it doesn't."""
    from orchestrator.localcloud import process  # noqa: PLC0415
    from orchestrator.settings import Settings  # noqa: PLC0415

    _print_cloud(process.status(Settings().home), as_json=as_json)


@cloud_app.command("stop")
def cloud_stop(
    yes: Annotated[bool, typer.Option("--yes", help="Also when boxes run on it.")] = False,
) -> None:
    """Stop the local cloud; its boxes, buckets and budgets go with it."""
    from orchestrator.localcloud import process  # noqa: PLC0415
    from orchestrator.settings import Settings  # noqa: PLC0415

    home = Settings().home
    if not yes and (running := process.running(home)):
        raise _would_lose(running)
    typer.echo(
        "The local cloud is stopped; its buckets and budgets are gone."
        if process.stop(home)
        else "The local cloud wasn't running."
    )


def _would_lose(running: dict[str, int]) -> NotConfirmed:
    boxes = sum(running.values())
    runs, pulls = sorted(running), "; ".join(f"gpurun pull {run}" for run in sorted(running))
    return NotConfirmed(
        f"{boxes} {'box runs' if boxes == 1 else 'boxes run'} on the local cloud, for "
        f"{', '.join(runs)}: with it they and all results end",
        hint=f"Keep what there is: {pulls}. Then: gpurun cloud stop --yes",
    )


def _print_cloud(state: CloudState | None, *, as_json: bool) -> None:
    if state is None:
        if as_json:
            typer.echo("null")
        raise CloudError("The local cloud isn't running.", hint="Start it: gpurun cloud start")
    if as_json:
        typer.echo(json.dumps(asdict(state), indent=1))
    else:
        typer.echo(f"The local cloud runs at {state.url} ({state.driver} boxes, pid {state.pid}).")
