"""The three servers that are compared: ours, a bare socket, and stock OpenEnv."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.env.process import Server, free_port

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = Path(__file__).with_name("bundle")
STOCK_PYTHON = ROOT / ".venv-openenv" / "bin" / "python"


def ours(
    journal: Path, *, bundle: str | Path = BUNDLE, max_sessions: int = 64, port: int | None = None
) -> Server:
    """`python -m agent_env.server`, as a trainer's own child runs it, with its journal on."""
    options = [f"--max-sessions={max_sessions}", f"--journal={journal}"]
    command = [sys.executable, "-m", "agent_env.server", str(bundle), *options]
    return Server(command, port or free_port(), cwd=ROOT)


def floor() -> Server:
    """The bare socket, under the same settings of the same server program."""
    return Server([sys.executable, "-m", "benchmarks.env.floor"], free_port(), cwd=ROOT)


def stock() -> Server:
    """OpenEnv's own server.

    Raises FileNotFoundError without .venv-openenv, with the command that makes it.
    """
    if not STOCK_PYTHON.exists():
        raise FileNotFoundError("stock OpenEnv isn't there to compare with: make openenv-setup")
    script = Path(__file__).with_name("stock.py")
    return Server([str(STOCK_PYTHON), str(script)], free_port(), cwd=ROOT)
