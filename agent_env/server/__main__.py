"""`python -m agent_env.server BUNDLE`: serve a bundle until told to stop."""

from __future__ import annotations

from agent_env.server.options import run_main
from agent_env.server.start import start


def main() -> None:
    """Parse, load, serve."""
    run_main("agent_env.server", start)


if __name__ == "__main__":
    main()
