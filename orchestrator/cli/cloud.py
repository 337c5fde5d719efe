"""`gpurun cloud …`: the local cloud."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.options import Json

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
    """Say whether the local cloud runs, and where."""
    from orchestrator.localcloud import process  # noqa: PLC0415
    from orchestrator.settings import Settings  # noqa: PLC0415

    _print_cloud(process.status(Settings().home), as_json=as_json)


@cloud_app.command("stop")
def cloud_stop() -> None:
    """Stop the local cloud; its boxes and buckets go with it."""
    from orchestrator.localcloud import process  # noqa: PLC0415
    from orchestrator.settings import Settings  # noqa: PLC0415

    stopped = process.stop(Settings().home)
    typer.echo("The local cloud is stopped." if stopped else "The local cloud wasn't running.")


def _print_cloud(state: CloudState | None, *, as_json: bool) -> None:
    if state is None:
        typer.echo(
            "null" if as_json else "The local cloud isn't running. Start it: gpurun cloud start"
        )
    elif as_json:
        typer.echo(json.dumps(asdict(state), indent=1))
    else:
        typer.echo(f"The local cloud runs at {state.url} ({state.driver} boxes, pid {state.pid}).")
