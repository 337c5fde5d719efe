"""Configs are refused with one clear line a fault, by a process that never imports torch."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from agent_env.training.config import (
    CONFIGS,
    AsyncGrpoConfig,
    ConfigError,
    EvaluateConfig,
    GrpoConfig,
    OutageConfig,
    SftConfig,
    UnslothConfig,
    parse_config,
)


def faults(program: str, **values: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(CONFIGS[program], values)
    return list(caught.value.faults)


def check(program: str, text: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent_env.training.config", program]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", CONFIGS)
def test_every_program_is_content_with_no_config_at_all(program: str) -> None:
    assert parse_config(CONFIGS[program], {}) == CONFIGS[program]()


def test_an_unknown_key_is_named_with_the_nearest_known_one() -> None:
    assert faults("grpo", stpes=5) == ["config.stpes: unknown key, did you mean 'steps'?"]


def test_an_unknown_key_inside_a_section_is_compared_with_that_sections_keys() -> None:
    line = "config.unsloth.fourbit: unknown key, did you mean 'four_bit'?"
    assert faults("grpo", unsloth={"fourbit": True}) == [line]


def test_a_key_like_no_other_gets_no_guess() -> None:
    assert faults("sft", zzz=1) == ["config.zzz: unknown key"]


def test_every_fault_is_reported_not_only_the_first() -> None:
    lines = faults("sft", noise=1.5, steps=0, splitt="x")
    assert {line.split(":")[0] for line in lines} == {
        "config.steps",
        "config.noise",
        "config.splitt",
    }


@pytest.mark.parametrize(
    ("program", "values", "fault"),
    [
        ("sft", {"noise": -0.1}, "config.noise: input should be greater than or equal to 0"),
        ("sft", {"learning_rate": float("nan")}, "config.learning_rate: input should be a finite"),
        ("sft", {"unsloth": True}, "config.unsloth: for a model that was trained before"),
        ("sft", {"lora": True}, "config.lora: for a model that was trained before"),
        ("sft", {"batch_rows": 8, "train_batch": 3}, "config.train_batch: 3 doesn't divide batch"),
        ("sft", {"bundle": ["gridsim", "inbox"]}, "config.bundle: this program takes one, not 2"),
        ("grpo", {"steps": "many"}, "config.steps: input should be a valid integer"),
        ("grpo", {"rollouts_per_task": 7}, "config.rollouts_per_task: 7 doesn't divide"),
        ("grpo", {"train_batch": 48}, "config.train_batch: 48 doesn't divide"),
        ("grpo", {"keep_checkpoints": 1}, "config.keep_checkpoints: input should be greater"),
        ("grpo", {"schedule": "cosine"}, "config.schedule: input should be 'linear' or 'const"),
        ("grpo", {"unsloth": True, "lora": True}, "config.lora: unsloth brings its own"),
        ("grpo", {"unsloth": True, "vllm": True}, "config.vllm: unsloth brings its own"),
        ("grpo", {"lora": {"rank": 0}}, "config.lora.rank: input should be greater"),
        ("grpo", {"lora": {"ranc": 8}}, "config.lora.ranc: unknown key, did you mean 'rank'?"),
        ("grpo", {"vllm": {"gpu_memory_share": 2}}, "config.vllm.gpu_memory_share: input should"),
        ("grpo", {"loss_type": "ppo"}, "config.loss_type: input should be 'dapo', 'grpo'"),
        ("grpo", {"report_to": ["wand"]}, "config.report_to.0: input should be 'wandb' or 'track"),
        ("grpo", {"bundle": 5}, "config.bundle: must be a name or a list of names, got 5"),
        ("grpo", {"bundle": []}, "config.bundle: must be a name or a list of names, got []"),
        ("grpo", {"bundle": ["a", "b"]}, "config.split: name one for each bundle, in their order"),
        ("evaluate", {"split": ["a", "b"]}, "config.split: name one for each bundle"),
        ("evaluate", {"bundle": ["a", "a"], "split": ["b", "b"]}, "config.bundle: a, a: one of"),
        ("outage", {"split": ["a"]}, "config.split: input should be a valid string"),
        ("grpo", {"model": "tiny"}, "config.model: 'tiny' is what sft builds"),
        ("async_grpo", {"beta": 0.1}, "config.beta: asynchronous GRPO keeps no reference"),
        ("async_grpo", {"loss_type": "grpo"}, "config.loss_type: asynchronous GRPO has one"),
        ("async_grpo", {"vllm": True}, "config.vllm: it is a server here"),
        ("async_grpo", {"lora": True}, "config.lora: every weight is trained here"),
        ("async_grpo", {"max_inflight": 8}, "config.max_inflight: 8 can't hold one task's"),
        ("async_grpo", {"unsloth": True}, "config.unsloth: asynchronous GRPO generates with"),
        (
            "async_grpo",
            {"unsloth": {"fast_inference": True}, "vllm_url": "http://localhost:8000"},
            "config.vllm_url: unsloth generates with its own engine",
        ),
        ("evaluate", {"samples": 0}, "config.samples: input should be greater than or equal to 1"),
        ("outage", {"rule": "new"}, "config.rule: input should be 'old', 'seed', 'continued' or"),
        (
            "outage",
            {"rule": "stock", "reward": "mean"},
            "config.reward: OpenEnv's own server has the bundle's own",
        ),
        ("outage", {"down_s": 60}, "config.down_s: input should be less than or equal to 45"),
        ("outage", {"interrupt_step": 3, "steps": 4}, "config.interrupt_step: 3 leaves no two"),
        ("outage", {"env_url": "http://127.0.0.1:1"}, "config.env_url: this program kills"),
    ],
)
def test_what_no_program_could_run_is_refused(
    program: str, values: dict[str, Any], fault: str
) -> None:
    (line,) = faults(program, **values)
    assert line.startswith(fault)


def test_unsloth_true_means_its_defaults_and_false_none() -> None:
    assert parse_config(GrpoConfig, {"unsloth": True}).unsloth == UnslothConfig()
    assert parse_config(GrpoConfig, {"unsloth": False}).unsloth is None
    assert parse_config(EvaluateConfig, {"unsloth": {"four_bit": False}}).unsloth == UnslothConfig(
        four_bit=False
    )


def test_a_split_is_named_for_each_bundle_in_their_order() -> None:
    both = {"bundle": ["gridsim", "inbox"], "split": ["coarse-eval", "eval"]}
    config = parse_config(EvaluateConfig, both)
    assert (config.bundles, config.split) == (("gridsim", "inbox"), ("coarse-eval", "eval"))
    assert EvaluateConfig().bundles == ("gridsim",)


@pytest.mark.parametrize(
    ("bundles", "batch", "samples", "tasks", "sessions"),
    [
        (1, 64, 2, 3, 6),
        (2, 64, 2, 3, 12),
        (1, 64, 8, None, 64),
        (1, 64, 6, None, 60),
        (1, 1, 9, 5, 9),
    ],
)
def test_an_eval_needs_no_more_sessions_than_it_has_rollouts(
    bundles: int, batch: int, samples: int, tasks: int | None, sessions: int
) -> None:
    names = [f"bundle-{number}" for number in range(bundles)]
    values = {"bundle": names, "split": ["eval"] * bundles, "batch": batch}
    assert parse_config(EvaluateConfig, values).eval_rollouts(samples, tasks) == sessions


def test_a_learning_rate_of_0_is_a_control_and_allowed() -> None:
    assert parse_config(GrpoConfig, {"learning_rate": 0}).learning_rate == 0


def test_a_config_cannot_be_changed_after_it_was_checked() -> None:
    with pytest.raises(ValueError, match="frozen"):
        SftConfig().steps = 1  # type: ignore[misc]


def test_the_outage_has_its_own_small_steps() -> None:
    assert OutageConfig().rollouts_per_step < GrpoConfig().rollouts_per_step


def test_asynchronous_rollouts_need_a_session_each_and_unsloth_no_server() -> None:
    config = parse_config(AsyncGrpoConfig, {"rollouts_per_step": 32})
    assert (config.inflight, config.server_url) == (32, "http://localhost:8000")
    unsloth = {"fast_inference": True}
    config = parse_config(AsyncGrpoConfig, {"max_inflight": 16, "unsloth": unsloth})
    assert (config.inflight, config.server_url) == (16, None)


def test_the_checking_process_accepts_a_good_config_in_silence() -> None:
    done = check("grpo", json.dumps({"steps": 5}))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_checking_process_says_each_fault_on_a_line_and_exits_2() -> None:
    done = check("grpo", json.dumps({"stpes": 5, "seed": -1}))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    ("program", "text", "said"),
    [
        (
            "gpro",
            "{}",
            "unknown program 'gpro', did you mean 'grpo'?; known: sft, grpo",
        ),
        ("grpo", "{", "config: not JSON"),
        ("grpo", "[1]", "config: must be a mapping, not list"),
    ],
)
def test_the_checking_process_explains_what_is_no_config(
    program: str, text: str, said: str
) -> None:
    done = check(program, text)
    assert done.returncode == 2
    assert done.stderr.startswith(said)


def test_the_checking_process_never_imports_torch() -> None:
    heavy = "{'torch', 'trl', 'transformers', 'datasets'}"
    code = f"import sys, agent_env.training.config; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
