"""What a server can be told, in one place for both ways to start one."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from agent_env.errors import AgentEnvError

MOST_SESSIONS = 100_000
MOST_WORKERS = 256
MOST_MEMORY_MB = 2**24


def parse(arguments: Sequence[str], *, prog: str) -> argparse.Namespace:
    """The options as typed; bad ones end the process with exit code 2 and the usage.

    Those without help are for a process that starts this one.
    """
    parser = _Parser(prog=prog, description="Serve one bundle or several until told to stop.")
    parser.add_argument("bundle", nargs="+", help="name, module:attribute, or folder")
    parser.add_argument("--host", type=_text, default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    sessions = _count(MOST_SESSIONS)
    parser.add_argument("--max-sessions", type=sessions, default=64, help="sessions at one time")
    parser.add_argument(
        "--reward", type=_text, help="a score's id, or mean; default: the bundle's own"
    )
    parser.add_argument(
        "--journal", type=_text, help="a folder: sessions outlive the server's process"
    )
    parser.add_argument(
        "--workers",
        type=_count(MOST_WORKERS),
        help="processes that run tasks; default: this one runs them",
    )
    parser.add_argument(
        "--worker-memory-mb",
        type=_count(MOST_MEMORY_MB),
        help="bound on each worker's address space, in MiB",
    )
    parser.add_argument(
        "--token-env", help="the environment variable that has the token that clients must send"
    )
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--parent-pid", type=int, help=argparse.SUPPRESS)
    parser.asked = arguments
    options = parser.parse_args(arguments)
    if options.worker_memory_mb is not None and options.workers is None:
        parser.error("--worker-memory-mb bounds workers: give --workers, too")
    return options


class _Parser(argparse.ArgumentParser):
    """One that also tells the process that starts this one what is wrong."""

    asked: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        known, _ = _starter().parse_known_args(self.asked)
        tell(known.ready_fd, {"error": message})
        super().error(message)


def _starter() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--ready-fd", type=int)
    return parser


def tell(ready_fd: int | None, said: dict[str, object]) -> None:
    """One line of JSON for the process that started this one, which reads no more."""
    if ready_fd is not None:
        with suppress(OSError), os.fdopen(ready_fd, "w") as pipe:
            pipe.write(json.dumps(said) + "\n")


def run_main(prog: str, start: Callable[[argparse.Namespace], None]) -> None:
    """Parse the command line and start; why it can't is told to the process that waits, too."""
    options = parse(sys.argv[1:], prog=f"python -m {prog}")
    try:
        start(options)
    except AgentEnvError as error:
        tell(options.ready_fd, {"error": str(error)})
        sys.exit(f"{prog}: {error}")
    except BaseException as error:  # a bundle may even try to end the process
        tell(options.ready_fd, {"error": f"{type(error).__name__}: {error}"})
        raise


def _count(most: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        if not text.isascii() or not text.isdecimal():
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number above 0")
        if not 1 <= float(text) <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]} is outside 1 to {most}")
        return int(text)

    return count


def _text(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; name one, or leave the option out")
    return text
