"""Configs that are right by themselves and can't run on a box: refused while they are planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import RunbookError
from orchestrator.pins import known_pins
from orchestrator.runbook import load_runbook
from orchestrator.software import packages_of

RUNBOOK = """\
name: box
cap_usd: 40
regions: [us-east-1]
boxes:
  one: {instance: g6.4xlarge, hours: 1}
jobs:
"""
LACKS = [
    ("program: sft", "program: sft needs pins cpu, unsloth or trl, the job has none", "pins: trl"),
    (
        "program: sft, pins: cpu, config: {model: org/m, unsloth: true}",
        "config.unsloth: needs pins unsloth, the job has cpu",
        "Set `pins: unsloth`.",
    ),
    (
        "program: sft, pins: cpu, config: {model: org/m, lora: {four_bit: true}}",
        "config.lora.four_bit: needs pins unsloth or trl, the job has cpu",
        "Set `pins: unsloth` or `pins: trl`.",
    ),
    (
        "program: grpo, pins: cpu, config: {model: org/m, vllm: true}",
        "config.vllm: needs pins unsloth or trl, the job has cpu",
        "Set `pins: unsloth` or `pins: trl`.",
    ),
    (
        "program: verl_grpo, pins: trl, config: {model: org/m}",
        "program: verl_grpo needs pins verl, the job has trl",
        "Set `pins: verl`.",
    ),
    (
        "program: skyrl_grpo, pins: verl, config: {model: org/m}",
        "program: skyrl_grpo needs pins skyrl, the job has verl",
        "Set `pins: skyrl`.",
    ),
    (
        "program: async_grpo, pins: cpu, config: {model: org/m, vllm_url: 'http://h:80'}",
        "program: async_grpo needs pins unsloth or trl, the job has cpu",
        "Set `pins: unsloth` or `pins: trl`.",
    ),
    (
        "program: grpo, pins: cpu, config: {model: org/m, eval_split: eval}",
        "config.eval_split: gridsim's 'eval' has other tools than 'coarse-train'",
        "With the same tools there are: coarse-train, coarse-eval.",
    ),
    (
        "program: grpo, pins: cpu",
        "config.model: 'input', but the job has no input named 'model'",
        "inputs: {model: {job: JOB, path: out/model}}",
    ),
    *(
        (
            f"program: grpo, pins: cpu, config: {{model: {model}}}",
            f"config.model: '{model}' is no hub's id, and the box has no folder of this machine",
            "Set a hub's id",
        )
        for model in ("/srv/model", "./model", "../model", "~/model", "runs/a/model")
    ),
    *(
        (
            f"program: sft, pins: cpu, config: {{env_url: 'http://{host}:8000'}}",
            "is the box itself, where no env server runs",
            "Give an address that the box reaches",
        )
        for host in ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")
    ),
    *(
        (
            f"program: sft, pins: cpu, config: {{env_url: '{url}'}}",
            f"config.env_url: '{url}' isn't an address like http://host:8000",
            "",
        )
        for url in ("somewhere", "http://[::")
    ),
    (
        "program: async_grpo, pins: trl, config: {model: org/m}",
        "config.vllm_url: http://localhost:8000 is the box itself, where no vLLM server runs",
        "unsloth.fast_inference: true",
    ),
    (
        "program: sft, pins: cpu, config: {bundle: gridsin}",
        "config.bundle: a box has only gridsim and inbox, did you mean 'gridsim'?",
        "Your own bundle needs a `command` job with a `workdir` (docs/bundles.md), or `env_url`.",
    ),
    (
        "program: sft, pins: cpu, config: {bundle: ./words}",
        "config.bundle: a box has only gridsim and inbox, got './words'",
        "or `env_url`",
    ),
    (
        "program: sft, pins: cpu, config: {split: coarse-trian}",
        "config.split: gridsim has no split 'coarse-trian'",
        "Did you mean 'coarse-train'? It has: train, eval, coarse-train, coarse-eval.",
    ),
    (
        "program: sft, pins: cpu, config: {bundle: inbox, split: train}",
        "config.eval_split: inbox has no split 'coarse-eval'",
        "Did you mean 'eval'? It has: train, eval.",
    ),
    (
        "program: sft, pins: cpu, config: {batch_rows: 30, train_batch: 8}",
        "config.train_batch: 8 doesn't divide batch_rows, 30; make that 24 or 32",
        "",
    ),
]


def _write(folder: Path, jobs: list[str]) -> Path:
    path = folder / "box.yaml"
    rows = [f"  job{at}: {{box: one, {job}}}\n" for at, job in enumerate(jobs)]
    path.write_text(RUNBOOK + "".join(rows))
    return path


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a runbook of all these jobs is refused with: one process answers for all."""
    with pytest.raises(RunbookError) as refused:
        load_runbook(_write(tmp_path_factory.mktemp("box"), [job for job, _, _ in LACKS]))
    return refused.value.message


@pytest.mark.parametrize(
    ("at", "problem", "fix"), [(at, *one[1:]) for at, one in enumerate(LACKS)]
)
def test_what_a_box_lacks_is_told_with_the_fix(said: str, at: int, problem: str, fix: str) -> None:
    told = said.split(f"jobs.job{at}.")[1:]

    assert len(told) == 1, "one fault for one thing"
    assert problem in told[0].replace("\n", " ")
    assert fix in told[0]


def test_what_a_box_has_is_let_in(tmp_path: Path) -> None:
    jobs = [
        "program: sft, pins: cpu",
        "program: grpo, pins: cpu, inputs: {model: {job: job0, path: out/model}}",
        "program: evaluate, pins: cpu, config: {model: org/m, bundle: [gridsim, inbox], "
        "split: [eval, train]}",
        "program: sft, pins: cpu, config: {bundle: mine, split: any, eval_split: any, "
        "env_url: 'http://10.0.0.7:8000'}",
        "program: async_grpo, pins: trl, config: {model: org/m, vllm_url: 'http://10.0.0.7:80'}",
        "program: verl_grpo, pins: verl, config: {model: org/m, vllm: true, lora: true}",
        "program: skyrl_grpo, pins: skyrl, config: {model: org/m, vllm: true, lora: true}",
        "program: grpo, pins: unsloth, config: {model: org/m, unsloth: {fast_inference: true}}",
        "program: grpo, pins: unsloth, config: {model: org/m, vllm: true, lora: true}",
        "command: python3 -c 1",
    ]

    assert len(load_runbook(_write(tmp_path, jobs)).jobs) == len(jobs)


def test_the_packages_of_pins_are_those_of_their_lock() -> None:
    have = {pins: packages_of(pins) for pins in known_pins()}

    assert all("torch" in packages for packages in have.values())
    assert [pins for pins in have if "unsloth" in have[pins]] == ["unsloth"]
    assert "vllm" not in have["cpu"]
