"""From options to a running server."""

from __future__ import annotations

import argparse
import json
import os
import sys

from agent_env.bundle import load_bundle
from agent_env.errors import TokenMissing
from agent_env.server.app import build_app
from agent_env.server.process import run


def start(options: argparse.Namespace) -> None:
    """Load the bundles and serve them until told to stop.

    Raises BundleError, RewardUndefined, JournalError, TokenMissing,
    CantListen.
    """
    bundles = [load_bundle(ref) for ref in options.bundle]
    app = build_app(
        bundles[0] if len(bundles) == 1 else bundles,
        reward=options.reward,
        max_concurrent_envs=options.max_sessions,
        journal=options.journal,
        token=_token(options.token_env),
    )
    run(
        app,
        host=options.host,
        port=options.port,
        announce=lambda bound: _announce(options, bound),
        with_parent=options.with_parent,
        parent_pid=options.parent_pid,
    )


def _token(variable: str | None) -> str | None:
    """Never on the command line, where every process of the machine could read it."""
    if variable is None:
        return None
    token = os.environ.get(variable)
    if not token:
        raise TokenMissing(
            f"--token-env names {variable}, which isn't set: export it and start again"
        )
    return token


def _announce(options: argparse.Namespace, port: int) -> None:
    """A line for a person, or JSON for the process at the other end of the pipe."""
    if options.ready_fd is not None:
        with os.fdopen(options.ready_fd, "w") as pipe:
            pipe.write(json.dumps({"port": port}) + "\n")
        return
    where = f"http://{options.host}:{port}"
    served = ", ".join(options.bundle)
    sys.stdout.write(f"serving {served} on {where}, {options.max_sessions} sessions at most\n")
    sys.stdout.flush()
