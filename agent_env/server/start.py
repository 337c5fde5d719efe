"""From options to a running server."""

from __future__ import annotations

import argparse
import os
import resource
import socket
import sys
import uuid
from pathlib import Path

from agent_env.bundle import load_bundle
from agent_env.errors import NoRoomToWork, TokenMissing
from agent_env.server.app import app_of, front_app, sessions_app
from agent_env.server.front import Front
from agent_env.server.journal import Journals
from agent_env.server.nursery import Nursery
from agent_env.server.options import tell
from agent_env.server.process import raise_file_limit, run
from agent_env.server.served import Served, serve
from agent_env.server.sessions import Sessions
from agent_env.server.trial import check_reward
from agent_env.server.worker import work

WORKER_NEEDS_MB = 192
"""Address space of a worker beyond what it was forked with: stacks and heaps of its threads."""


def start(options: argparse.Namespace) -> None:
    """Load the bundles and serve them until told to stop.

    Raises BundleError, RewardUndefined, JournalError, TokenMissing, CantListen, NoRoomToWork.
    """
    token = _token(options.token_env)
    bundles = [load_bundle(ref) for ref in options.bundle]
    served = serve(bundles[0] if len(bundles) == 1 else bundles, options.reward)
    _check_memory(options.worker_memory_mb)
    check_reward(served)
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


def _check_memory(bound_mb: int | None) -> None:
    """A worker has what is loaded here, and its threads and sessions beside that."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    least_mb = pages * resource.getpagesize() // 2**20 + WORKER_NEEDS_MB
    if bound_mb is not None and bound_mb < least_mb:
        raise NoRoomToWork(
            f"--worker-memory-mb {bound_mb}: a worker with these bundles needs {least_mb} MiB of"
            f" address space before any task has begun: give {2 * least_mb} or more"
        )


def _announce(options: argparse.Namespace, port: int) -> None:
    """A line for a person, or JSON for the process at the other end of the pipe."""
    if options.ready_fd is not None:
        tell(options.ready_fd, {"port": port})
        options.ready_fd = None
        return
    where = f"http://{options.host}:{port}"
    served = ", ".join(options.bundle)
    kept = f", journal in {options.journal}" if options.journal else ""
    most = f"{options.max_sessions} sessions at most"
    sys.stdout.write(f"serving {served} on {where}, {most}{kept}\n")
    sys.stdout.flush()
