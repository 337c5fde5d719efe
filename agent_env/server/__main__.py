"""`python -m agent_env.server BUNDLE`: serve a bundle until told to stop."""

from __future__ import annotations

import sys

from agent_env.errors import AgentEnvError
from agent_env.server.options import parse, tell
from agent_env.server.start import start


def main() -> None:
    """Parse, load, serve."""
    options = parse(sys.argv[1:], prog="python -m agent_env.server")
    try:
        start(options)
    except AgentEnvError as error:
        tell(options.ready_fd, {"error": str(error)})
        sys.exit(f"agent_env.server: {error}")
    except BaseException as error:  # a bundle may even try to end the process
        tell(options.ready_fd, {"error": f"{type(error).__name__}: {error}"})
        raise


if __name__ == "__main__":
    main()
