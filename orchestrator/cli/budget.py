"""`gpurun budget`: caps that runs share."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated

import typer

from orchestrator.cli.options import Cloud, Json, OnCloud, parse_usd


def show_budget(
    name: Annotated[str | None, typer.Argument(help="A budget; all of them without it.")] = None,
    cap: Annotated[
        Decimal | None,
        typer.Option("--cap", parser=parse_usd, help="Make it, or change its cap, in USD."),
    ] = None,
    cloud: OnCloud = Cloud.LOCAL,
    as_json: Json = False,
) -> None:
    """Make, change or show a cap that runs share: gpurun up RUNBOOK --budget NAME."""
    if cap is not None and name is None:
        raise typer.BadParameter("which budget? gpurun budget NAME --cap USD")
    from orchestrator.budget_log import make_budget  # noqa: PLC0415
    from orchestrator.budgets import look_at, look_at_all  # noqa: PLC0415
    from orchestrator.clock import SystemClock  # noqa: PLC0415
    from orchestrator.console.terminal import make_console  # noqa: PLC0415
    from orchestrator.console.views import budgets_view  # noqa: PLC0415
    from orchestrator.opened import open_cloud  # noqa: PLC0415

    session, now = open_cloud(cloud.value), SystemClock().now()
    if name is not None and cap is not None:
        make_budget(session, name, cap, now)
    rows = look_at_all(session, now) if name is None else [look_at(session, name, now)]
    if as_json:
        shown = [row.model_dump(mode="json") for row in rows]
        typer.echo(json.dumps(shown if name is None else shown[0], indent=1))
    else:
        make_console().print(budgets_view(rows))
