"""`agent-env serve`: `python -m agent_env.server` under the name that people type."""

from __future__ import annotations

import typer

from agent_env.cli._told import told


def serve(context: typer.Context) -> None:
    """Serve a bundle until interrupted."""
    # The server's packages load in 0.3 s: only the command that serves pays for them.
    from agent_env.server.options import parse  # noqa: PLC0415
    from agent_env.server.start import start  # noqa: PLC0415

    options = parse(context.args, prog="agent-env serve")
    with told():
        start(options)
