"""`python -m tools.gpu_check.training HOW MODEL TOLD`: one short training, told check by check.

HOW is `cpu` (TRL alone), `lora` or `qlora` (under Unsloth); MODEL a folder, which may be missing:
then a model that has learned nothing is trained.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from importlib import import_module
from pathlib import Path

from agent_env.training.process import settle_process
from tools.gpu_check.names import prefix
from tools.gpu_check.told import Told


def main() -> int:
    """Settle the process, then import what trains: unsloth must be the first."""
    how, model, told = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    # The last lines of the log of a step that hangs are then the place where it hung.
    faulthandler.register(signal.SIGTERM, chain=True)
    settle_process(source=str(model) if model.is_dir() else "tiny", unsloth=how != "cpu")
    learning = import_module("tools.gpu_check.learning")
    learning.check(how, model, Told(told, prefix(how)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
