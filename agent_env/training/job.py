"""The file a program is started with, and how a program ends.

`{"config": {…}, "out": folder, "metrics": file, "inputs": {name: path}}`. Exit status: 0 done,
2 the config is wrong (trying again is useless), 143 asked to stop and checkpointed, else failed.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict

from agent_env.errors import AgentEnvError
from agent_env.training.config import (
    CONFIGS,
    EXIT_BAD_CONFIG,
    ConfigError,
    ProgramConfig,
    parse_config,
)
from agent_env.training.disk import full_disk
from agent_env.training.owner import job_on_box
from agent_env.training.preflight import check_machine
from agent_env.training.process import quiet_libraries, settle_process
from agent_env.training.reporting import settle_reporting
from agent_env.training.stopping import Stopped, StopRequest

EXIT_FAILED = 1
EXIT_STOPPED = 143

C = TypeVar("C", bound=ProgramConfig)


class JobFailed(AgentEnvError):
    """The job ran and can't count as done; the message says why."""


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


_Absolute = Annotated[Path, AfterValidator(_absolute)]


class _JobFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    config: dict[str, Any]
    out: _Absolute
    metrics: _Absolute
    inputs: dict[str, _Absolute] = {}


class Job(BaseModel, Generic[C]):
    """One job, checked: its config, where its results go, and what other jobs left for it."""

    model_config = ConfigDict(frozen=True)

    config: C
    out: Path
    metrics: Path
    inputs: dict[str, Path]

    @property
    def model_source(self) -> str:
        """Where the model is; `input` is the job's input `model`.

        Raises ConfigError when there is none, JobFailed when it is no model.
        """
        if self.config.model != "input":
            named = self.config.model
            return str(Path(named).expanduser()) if named.startswith("~") else named
        if "model" not in self.inputs:
            raise ConfigError(["config.model: 'input', but the job has no input named 'model'"])
        folder = self.inputs["model"]
        if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise JobFailed(f"the job's input 'model' is no model: no config.json in {folder}")
        return str(folder)


def read_job(path: Path, config: type[C]) -> Job[C]:
    """The job that the file describes. Raises ConfigError."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError([f"{path}: {error}"]) from None
    file = parse_config(_JobFile, values)
    checked = parse_config(config, file.config)
    return Job(config=checked, out=file.out, metrics=file.metrics, inputs=file.inputs)


def run_program(name: str) -> int:
    """Run the program on the job file that the command line names; returns the exit status."""
    if len(sys.argv) != 2:
        sys.stderr.write(f"usage: python -m agent_env.training.{name} job.json\n")
        return EXIT_BAD_CONFIG
    # What a box asks a frozen job: every thread's stack, even while native code holds them up.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    stop = StopRequest()
    stop.listen()
    try:
        _run(name, Path(sys.argv[1]), stop)
    except Stopped:
        return EXIT_STOPPED
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_BAD_CONFIG
    except AgentEnvError as error:
        sys.stderr.write(f"failed: {error}\n")
        return EXIT_FAILED
    finally:
        stop.over()
    return 0


def next_command() -> str:
    """What a person types after a failure: where its log is, or the program again."""
    if on_box := job_on_box():
        return f"see what the server said: gpurun logs {' '.join(on_box)}"
    program, words = Path(sys.argv[0]).stem, " ".join(sys.argv[1:])
    return f"go on from the last checkpoint: python -m agent_env.training.{program} {words}"


def _run(name: str, path: Path, stop: StopRequest) -> None:
    job = read_job(path, CONFIGS[name])
    quiet_libraries()
    if job.config.under_trl:
        check_machine(job.model_source, job.config)
    settle_reporting(job.config, job.out)
    settle_process(source=job.model_source, unsloth=job.config.unsloth is not None)
    # Found by name and only now: a wrong config is told in a fraction of a second, and unsloth
    # must be imported before the trainer that it rewrites.
    with _full_disk_told(job.out):
        import_module(f"agent_env.training.programs.{name}").run(job, stop)


@contextmanager
def _full_disk_told(out: Path) -> Iterator[None]:
    """Raises JobFailed in the place of whatever met a full disk."""
    try:
        yield
    except AgentEnvError:
        raise
    except Exception as error:
        if (said := full_disk(error, out)) is None:
            raise
        on_box = "set the box's disk_gb higher in the runbook and run it again"
        then = on_box if job_on_box() else f"make room there, then {next_command()}"
        raise JobFailed(f"the disk is full: {said}: {then}") from None
