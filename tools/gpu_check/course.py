"""The steps in their order, on a GPU and in a rehearsal, and the time that each may take."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.gpu_check import machine, names
from tools.gpu_check.steps import Deadline, Step, run_step
from tools.gpu_check.verdicts import Check, failed, passed, skipped

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "templates" / "pins"
VENV = ROOT / ".venv-gpu"

NEEDED = ("unsloth", "unsloth-zoo", "trl", "transformers", "torch", "peft", "datasets", "triton")
NEEDED_ON_THE_CPU = ("trl", "transformers", "torch", "datasets", "accelerate")

ROOM_GB = 12.8
"""What pip needs for them at its worst; started again, part of it is there."""
VENV_S, INSTALL_S, CUDA_S, MODEL_S = 30, 240, 60, 120
TRAINING_S = {"cpu": 120, "lora": 170, "qlora": 130}
"""Seconds; Unsloth compiles its kernels in the first of the two."""

SFT = {
    "bundle": "agent_env.bundles.gridsim:bundle",
    "demonstrations": 120,
    "steps": 140,
    "eval_tasks": 8,
    "eval_samples": 2,
    "gate": 0.25,
    "extra_rounds": 1,
}
"""The warm start: enough that rollouts of one task differ in their reward."""

ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "1",
    "HF_HUB_OFFLINE": "1",
    "UNSLOTH_DISABLE_STATISTICS": "1",
}


@dataclass
class Course:
    """What was checked so far, where it is done, and until when."""

    folder: Path
    deadline: Deadline
    checks: list[Check] = field(default_factory=list)

    def on_a_gpu(self, gpu: machine.Gpu) -> None:
        """All of it. Without the packages the rest is skipped, and says so."""
        good = gpu.driver_is_new_enough
        self._add((passed if good else failed)("GPU and driver", str(gpu)))
        lock = PINS / "unsloth.txt"
        lacking = None if good else "the driver is too old"
        if lacking:
            self._add(skipped("packages", lacking))
            python = None
        elif (python := self._interpreter(lock)) is None:
            lacking = "the packages aren't there"
        python = python or sys.executable
        cuda = [python, "-m", "tools.gpu_check.cuda"]
        (check,) = self._step("cuda", cuda, CUDA_S, ["CUDA"], lacking)
        if check.verdict == "FAIL":
            lacking = "torch can't use the GPU"
        model = self._warm_start(python, lacking)
        self._train("lora", python, model, lacking)
        missing = machine.differences(python, lock, ["bitsandbytes"])
        no_4_bit = "bitsandbytes isn't there" if "missing" in "".join(missing) else None
        self._train("qlora", python, model, lacking or no_4_bit)

    def on_the_cpu(self, python: str) -> None:
        """The same steps with TRL alone; what needs a GPU is skipped, and says so."""
        why = "a rehearsal: no GPU is used, and Unsloth is not run"
        self._add(skipped("GPU and driver", why))
        self._packages(python, PINS / "cpu.txt", NEEDED_ON_THE_CPU)
        self._add(skipped("CUDA", why))
        model = self._warm_start(python, None)
        self._train("cpu", python, model, None)
        for how in ("lora", "qlora"):
            self._train(how, python, model, why)

    def _interpreter(self, lock: Path) -> str | None:
        """One with the locked packages: this one, .venv-gpu, or .venv-gpu made now."""
        made = VENV / "bin" / "python"
        for python in (sys.executable, str(made)):
            if not machine.differences(python, lock, NEEDED):
                return self._packages(python, lock, NEEDED)
        base = machine.find_python()
        if base is None:
            wanted = ".".join(map(str, machine.PYTHON))
            why = f"the lock is for Python {wanted}, and none with venv is here: install it"
            why += (
                f" (Debian's python{wanted}-venv and python{wanted}-dev), or name an interpreter"
            )
            self._add(failed("packages", f"{why} that has the packages with PYTHON="))
            return None
        if not VENV.exists() and (free := machine.free_gb(VENV.parent)) < ROOM_GB:
            why = f"{VENV.parent} has {free:.1f} GB free, the packages take {ROOM_GB}: make room,"
            self._add(
                failed("packages", f"{why} or name an interpreter that has them with PYTHON=")
            )
            return None
        venv = Step(
            "venv", [base, "-m", "venv", str(VENV)], VENV_S, ["venv"], lambda: (base, True)
        )
        pip = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(lock)]
        install = Step("install", pip, INSTALL_S, ["install"], lambda: (str(VENV), True))
        for step in (venv, install):
            (check,) = self._run(step)
            if check.verdict != "PASS":
                return None
        return self._packages(str(made), lock, NEEDED)

    def _packages(self, python: str, lock: Path, names: Sequence[str]) -> str | None:
        """The interpreter, if its packages are as locked."""
        wrong = machine.differences(python, lock, names)
        versions = machine.locked_versions(lock)
        told = ", ".join(f"{name} {versions[name]}" for name in names)
        if wrong:
            self._add(failed("packages", f"{python}: {'; '.join(wrong)}"))
            return None
        self._add(passed("packages", f"{told}; as locked in {lock.name}"))
        return python

    @property
    def model_folder(self) -> Path:
        """Another recipe, another folder."""
        name = hashlib.sha256(json.dumps(SFT).encode() + _recipe()).hexdigest()[:12]
        return self.folder / f"model-{name}"

    def _warm_start(self, python: str, skip: str | None) -> Path:
        """Where the tiny model is or would be; one from an earlier time is taken again."""
        out = self.model_folder
        metrics = out / "metrics.jsonl"

        def found() -> tuple[str, bool]:
            last = _last_line(metrics)
            told = f"sampled reward {last.get('eval_reward')}, {last.get('unscored')} unscored"
            whole = last.get("kind") == "final" and (out / "model" / "config.json").is_file()
            return f"warm start by our sft: {told}", whole

        if not skip and found()[1]:
            self._add(passed("tiny model", f"{found()[0]}, kept from an earlier time"))
            return out / "model"
        job = {"config": SFT, "out": str(out), "metrics": str(metrics), "inputs": {}}
        (self.folder / "sft.json").write_text(json.dumps(job))
        command = [python, "-m", "agent_env.training.sft", str(self.folder / "sft.json")]
        self._run(Step("sft", command, MODEL_S, ["tiny model"], found, skip, ENVIRONMENT))
        return out / "model"

    def _train(self, how: str, python: str, model: Path, skip: str | None) -> None:
        if skip:
            self._add(skipped(names.TITLE[how], skip))
            return
        command = [python, "-m", "tools.gpu_check.training", how, str(model)]
        self._step(how, command, TRAINING_S[how], names.owed(how), None)

    def _step(
        self, name: str, command: list[str], limit_s: float, owes: list[str], skip: str | None
    ) -> list[Check]:
        """A step that tells its checks into the file that its command line ends with."""
        told = str(self.folder / f"{name}.jsonl")
        return self._run(Step(name, [*command, told], limit_s, owes, None, skip, ENVIRONMENT))

    def _run(self, step: Step) -> list[Check]:
        checks = run_step(step, self.folder, self.deadline)
        self._add(*checks)
        return checks

    def _add(self, *checks: Check) -> None:
        for check in checks:
            sys.stderr.write(f"{check.verdict:7}  {check.name}: {check.seen}\n")
        self.checks += checks


def _last_line(metrics: Path) -> dict[str, Any]:
    """Of a metrics file; nothing of one that isn't there or ends in half a line."""
    try:
        line: dict[str, Any] = json.loads(metrics.read_text("utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return line


def _recipe() -> bytes:
    """The code that makes the model: another one makes another."""
    folder = ROOT / "agent_env" / "training"
    return (folder / "tiny.py").read_bytes() + (folder / "warmstart.py").read_bytes()
