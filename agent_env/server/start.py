"""From options to a running server."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import uuid
from pathlib import Path

from agent_env.bundle import load_bundle
from agent_env.errors import TokenMissing
from agent_env.server.app import app_of, front_app, sessions_app
from agent_env.server.front import Front
from agent_env.server.journal import Journals
from agent_env.server.nursery import Nursery
from agent_env.server.process import raise_file_limit, run
from agent_env.server.served import Served, serve
from agent_env.server.sessions import Sessions
from agent_env.server.worker import work


def start(options: argparse.Namespace) -> None:
    """Load the bundles and serve them until told to stop.

    Raises BundleError, RewardUndefined, JournalError, TokenMissing, CantListen.
    """
    token = _token(options.token_env)
    bundles = [load_bundle(ref) for ref in options.bundle]
    served = serve(bundles[0] if len(bundles) == 1 else bundles, options.reward)
    journals = Journals(Path(options.journal), options.max_sessions) if options.journal else None
    raise_file_limit()
    if options.workers is None:
        front, app = None, app_of(served, journals, options.max_sessions, token)
    else:
        name = uuid.uuid4().hex[:12]
        nursery = Nursery(lambda end: _work(options, served, journals, token, name, end))
        front = Front(nursery, options.workers, options.max_sessions, journals)
        app = front_app(served, front, token)
    run(
        app,
        host=options.host,
        port=options.port,
        announce=lambda bound: _announce(options, bound),
        with_parent=options.with_parent,
        parent_pid=options.parent_pid,
        front=front,
    )


def _work(
    options: argparse.Namespace,
    served: Served,
    journals: Journals | None,
    token: str | None,
    name: str,
    end: socket.socket,
) -> None:
    """A worker's life."""
    work(
        end,
        lambda room: sessions_app(Sessions(served, room, journals, server=name), token),
        max_sessions=options.max_sessions,
        memory_mb=options.worker_memory_mb,
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
