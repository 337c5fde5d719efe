"""`python -m orchestrator.localcloud --home DIR`: run the local cloud in the foreground."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from orchestrator.errors import CloudError
from orchestrator.localcloud import drivers
from orchestrator.localcloud.state import only_one
from orchestrator.settings import Settings


def _parsed(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="orchestrator.localcloud", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--driver", choices=("auto", "bwrap", "process"), default="auto")
    parser.add_argument("--wheels", type=Path, default=Settings().wheels)
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--as-root", action="store_true")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    asked = _parsed(argv)
    try:
        driver = drivers.choose(asked.driver, as_root=asked.as_root)
        with only_one(asked.home):
            _run(asked, driver)
    except CloudError as wrong:
        sys.stderr.write(f"{wrong}\n")
        return wrong.exit_code
    return 0


def _run(asked: argparse.Namespace, driver: drivers.Driver) -> None:
    # moto takes seconds to import: a cloud that can't start says so before.
    from orchestrator.localcloud import daemon  # noqa: PLC0415

    daemon.set_up_logging()
    wheels = asked.wheels and Path(asked.wheels).absolute()
    home = asked.home.absolute()
    options = daemon.DaemonOptions(home=home, port=asked.port, wheels=wheels, region=asked.region)
    daemon.run(options, driver)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # freeing all that moto holds, object by object, takes seconds
