"""`make gpu-check`: see the package. Exit status: 0 all passed, 1 something failed, 2 a wrong
command line, 3 no NVIDIA GPU, 4 nothing failed and something was skipped.
"""

from __future__ import annotations

import argparse
import platform
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tools.gpu_check import machine, verdicts
from tools.gpu_check.course import ROOT, Course
from tools.gpu_check.steps import Deadline

TOTAL_S = 480.0
"""Everything together, the installation included."""

WITHOUT = """\
No check: {reason}.
This needs a machine with an NVIDIA GPU. Without one:
  make gpu-proof               the rehearsal: the same programs, on the local cloud and the CPU
  make gpu-check REHEARSE=1    this check's own steps with TRL on the CPU; Unsloth's are skipped
"""


def main(argv: Sequence[str]) -> int:
    """Check, print the table, write the JSON."""
    asked = _parser().parse_args(argv)
    folder: Path = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    course = Course(folder, Deadline.after(TOTAL_S))
    gpu = None
    if asked.rehearse:
        course.on_the_cpu(asked.python)
    else:
        try:
            gpu = machine.find_gpu()
        except machine.NoGpu as error:
            sys.stderr.write(WITHOUT.format(reason=error))
            return verdicts.NO_GPU
        course.on_a_gpu(gpu)
    return _close(course, asked, began, gpu)


def _close(
    course: Course, asked: argparse.Namespace, began: float, gpu: machine.Gpu | None
) -> int:
    seconds = time.monotonic() - began
    status = verdicts.exit_status(course.checks, rehearsal=asked.rehearse)
    facts = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251 - a command's own
        "rehearsal": asked.rehearse,
        "gpu": str(gpu) if gpu else None,
        "machine": platform.platform(),
        "seconds": round(seconds, 1),
        "exit_status": status,
    }
    told = verdicts.summary(course.checks, rehearsal=asked.rehearse, seconds=seconds)
    sys.stdout.write(f"\n{verdicts.table(course.checks)}\n\n{told}\n")
    try:
        verdicts.write(asked.json, course.checks, facts)
    except OSError as error:
        sys.stdout.write(f"not written: {error}\n")
    else:
        sys.stdout.write(f"written to {asked.json}\n")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make gpu-check", description=__doc__)
    parser.add_argument("--rehearse", action="store_true", help="the same steps on the CPU")
    parser.add_argument(
        "--python", default=str(ROOT / ".venv-train/bin/python"), help="what a rehearsal runs with"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".gpu-check", help="logs, the model")
    parser.add_argument("--json", type=Path, default=Path("gpu-check.json"), help="the verdicts")
    return parser


def end_on_signals() -> None:
    """A check that is told to end takes its step with it, which may hold the GPU."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda got, _frame: sys.exit(128 + got))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))
