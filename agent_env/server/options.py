"""What a server can be told, in one place for both ways to start one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def parse(arguments: Sequence[str], *, prog: str) -> argparse.Namespace:
    """The options as typed; bad ones end the process with exit code 2 and the usage.

    Those without help are for a process that starts this one.
    """
    parser = argparse.ArgumentParser(
        prog=prog, description="Serve one bundle or several until told to stop."
    )
    parser.add_argument("bundle", nargs="+", help="name, module:attribute, or folder")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--max-sessions", type=_count, default=64, help="sessions at one time")
    parser.add_argument("--reward", help="a score's id, or mean; default: the bundle's own")
    parser.add_argument("--journal", help="a folder: sessions outlive the server's process")
    parser.add_argument(
        "--workers", type=_count, help="processes that run tasks; default: this one runs them"
    )
    parser.add_argument(
        "--worker-memory-mb", type=_count, help="bound on each worker's address space, in MiB"
    )
    parser.add_argument(
        "--token-env", help="the environment variable that has the token that clients must send"
    )
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--parent-pid", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker_memory_mb is not None and options.workers is None:
        parser.error("--worker-memory-mb bounds workers: give --workers, too")
    return options


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number
