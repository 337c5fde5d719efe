"""`python -m agent_env.server BUNDLE`: serve a bundle until told to stop."""

from __future__ import annotations

import argparse
import json
import os

from agent_env.bundle import load_bundle
from agent_env.server.app import build_app
from agent_env.server.process import run


def main() -> None:
    """Parse, load, serve. The options without help are for the process that starts this one."""
    parser = argparse.ArgumentParser(prog="python -m agent_env.server", description=__doc__)
    parser.add_argument("bundle", nargs="+", help="name, module:attribute, or folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--max-sessions", type=int, default=64)
    parser.add_argument("--reward", help="the score that is the reward; default: the bundle's own")
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--parent-pid", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    bundles = [load_bundle(ref) for ref in args.bundle]
    app = build_app(
        bundles[0] if len(bundles) == 1 else bundles,
        reward=args.reward,
        max_concurrent_envs=args.max_sessions,
    )
    run(
        app,
        host=args.host,
        port=args.port,
        announce=lambda bound: _report(args.ready_fd, bound),
        with_parent=args.with_parent,
        parent_pid=args.parent_pid,
    )


def _report(ready_fd: int | None, port: int) -> None:
    """One JSON line for the process that waits at the other end of the pipe."""
    if ready_fd is not None:
        with os.fdopen(ready_fd, "w") as pipe:
            pipe.write(json.dumps({"port": port}) + "\n")


if __name__ == "__main__":
    main()
