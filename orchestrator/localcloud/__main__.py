"""`python -m orchestrator.localcloud --home DIR`: run the local cloud in the foreground."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from orchestrator.errors import CloudError
from orchestrator.localcloud import daemon
from orchestrator.settings import Settings


def options(argv: list[str]) -> daemon.DaemonOptions:
    parser = argparse.ArgumentParser(prog="orchestrator.localcloud", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--driver", choices=("auto", "bwrap", "process"), default="auto")
    parser.add_argument("--wheels", type=Path, default=Settings().wheels)
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--as-root", action="store_true")
    asked = vars(parser.parse_args(argv))
    for name in ("home", "wheels"):
        asked[name] = asked[name].absolute() if asked[name] is not None else None
    return daemon.DaemonOptions(**asked)


def main(argv: list[str]) -> int:
    daemon.set_up_logging()
    try:
        daemon.run(options(argv))
    except CloudError as wrong:
        sys.stderr.write(f"{wrong}\n")
        return wrong.exit_code
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # freeing all that moto holds, object by object, takes seconds
