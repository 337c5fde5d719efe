"""Our programs, as far as the controller knows them: names, and a question to ask.

The programs' own package says what their configs may hold. It is asked in a process, so that
neither package imports the other; one process answers for all jobs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from orchestrator.faults import Fault, Path, did_you_mean
from orchestrator.software import unpinned
from orchestrator.spec import JobSpec, RunbookSpec

PROGRAMS = ("sft", "grpo", "async_grpo", "verl_grpo", "skyrl_grpo", "evaluate", "outage")
TIMEOUT_S = 30
STEPS_A_LINE = {"sft": 50, "grpo": 1, "async_grpo": 1, "verl_grpo": 1, "skyrl_grpo": 1}
"""How many steps a program takes from one line of its metrics to the next, if it tells any."""

_ASK = """
import json, sys
from agent_env.training.config.numbers import NUMBERS
from agent_env.training.config.on_box import ask
json.dump([[ask(*job) for job in json.load(sys.stdin)], NUMBERS], sys.stdout)
"""

_Answer = tuple[list[tuple[str, str, str]], dict[str, list[str]]]
"""Each field that is wrong with its problem and its fix; the packages that each setting needs."""


class ConfigCheck:
    """A question on its way: started at once, answered while other checks are made."""

    def __init__(self, spec: RunbookSpec) -> None:
        self._spec = spec
        self._jobs = {name: job for name, job in spec.jobs.items() if job.program in PROGRAMS}
        self._process = _ask(list(self._jobs.values())) if self._jobs else None

    def faults(self) -> list[Fault]:
        """What the programs reject in their jobs' configs, at the config's own fields.

        And what a job's pins don't have of what its settings need, and every number that it is to
        be judged by though its program never tells it.
        """
        if self._process is None:
            return []
        answers, numbers, trouble = _answers(self._process)
        if answers is None:
            fix = "Set the project up again: `make setup`."
            problem = f"the programs can't be asked about their configs: {trouble}"
            return [Fault(("jobs",), problem, fix)]
        rejected = [
            fault
            for (name, job), (lacks, packages) in zip(self._jobs.items(), answers, strict=True)
            for fault in (
                *(_rejected(name, *lack) for lack in lacks),
                *unpinned(name, job, self._spec, packages),
            )
        ]
        return rejected + [
            fault
            for name, job in self._jobs.items()
            for fault in _untold(name, job, numbers.get(job.program or ""))
        ]


def _ask(jobs: list[JobSpec]) -> subprocess.Popen[str]:
    questions = [(job.program, dict(job.config), list(job.inputs)) for job in jobs]
    # -P: a folder named agent_env where the command was typed must not be asked instead.
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _ASK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    if process.stdin is not None:
        process.stdin.write(json.dumps(questions))
        process.stdin.close()
        process.stdin = None
    return process


def _answers(
    process: subprocess.Popen[str],
) -> tuple[list[_Answer] | None, dict[str, list[str]], str]:
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, {}, f"no answer within {TIMEOUT_S} s"
    if process.returncode != 0:
        return None, {}, (err.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    answers, numbers = json.loads(out)
    return answers, numbers, ""


def _untold(name: str, job: JobSpec, told: list[str] | None) -> Iterator[Fault]:
    """Nothing of a program that doesn't say what it tells."""
    if told is None:
        return
    for field, wanted in (("expect", job.expect), ("reference", job.reference)):
        for number in wanted:
            if not any(_names(one, number) for one in told):
                problem = f"{job.program} tells no number {number!r} at its end"
                yield Fault(("jobs", name, field, number), problem, did_you_mean(number, told))


def _names(known: str, number: str) -> bool:
    """One that ends in `/` stands for all that begin so."""
    return number.startswith(known) if known.endswith("/") else number == known


def _rejected(name: str, where: str, problem: str, fix: str) -> Fault:
    """What is wrong at `config.a.b`."""
    path: Path = ("jobs", name, *(part for part in where.split(".") if part))
    return Fault(path, problem, fix)
