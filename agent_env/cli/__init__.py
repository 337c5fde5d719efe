"""`agent-env`: serve a bundle, list its tasks, measure a policy on it and look at what it did."""

from __future__ import annotations

import typer

from agent_env.cli.check import check_bundle
from agent_env.cli.evaluate import evaluate
from agent_env.cli.new import new
from agent_env.cli.results import compare, export, replay
from agent_env.cli.serve import serve
from agent_env.cli.tasks import tasks

main = typer.Typer(
    name="agent-env",
    help="Environments to train agents on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# Its options are the server's own, help included: both ways to start one read the same list.
main.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "help_option_names": [],
    }
)(serve)
main.command()(tasks)
main.command("check")(check_bundle)
main.command()(new)
main.command("eval")(evaluate)
main.command()(compare)
main.command()(replay)
main.command()(export)
