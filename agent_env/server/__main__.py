"""`python -m agent_env.server BUNDLE`: serve a bundle until told to stop."""

from __future__ import annotations

import sys

from agent_env.errors import AgentEnvError
from agent_env.server.options import parse
from agent_env.server.start import start


def main() -> None:
    """Parse, load, serve."""
    options = parse(sys.argv[1:], prog="python -m agent_env.server")
    try:
        start(options)
    except AgentEnvError as error:
        sys.exit(f"agent_env.server: {error}")


if __name__ == "__main__":
    main()
