"""AsyncGRPOTrainer trains the tiny model here: its own trainer, worker, queue and checkpoints.

What of it needs a GPU is stood in for: its attention (a CUDA kernel), the transfer of weights
(NCCL), a look at the GPU's speed, and vLLM itself, whose answers are scripted.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.training import models, tiny
from agent_env.training.config import AsyncGrpoConfig, ConfigError
from agent_env.training.demonstrations import tools_of
from agent_env.training.guard import UnscoredGuard
from agent_env.training.job import Job, JobFailed
from agent_env.training.metrics import MetricsFile
from agent_env.training.preflight import check_machine
from agent_env.training.progress import Progress
from agent_env.training.rollout_worker import EpisodeLog
from agent_env.training.stopping import Stopped, StopRequest

from .vllm_stand_in import StandIn, call, rollout_worker, stopping

trainer_module = import_module("agent_env.training.async_trainer")
program = import_module("agent_env.training.programs.async_grpo")
packing = import_module("trl.experimental.async_grpo.packing")
trl_trainer = import_module("trl.experimental.async_grpo.async_grpo_trainer")

pytestmark = [pytest.mark.trl, pytest.mark.timeout(600)]

COUNTER = Path(__file__).parents[1] / "counter"
RESULT = "<tool_response>"
CONFIG = {
    "bundle": "counter",
    "split": "eval",
    "model": "input",
    "steps": 3,
    "rollouts_per_step": 4,
    "rollouts_per_task": 2,
    "train_batch": 2,
    "save_steps": 9,
    "max_inflight": 2,
}


numbers = itertools.count()


class AllButTheFirst:
    """Whether a prompt is of a task that comes after the first so many."""

    def __init__(self, count: int) -> None:
        self._first: set[str] = set()
        self._count = count
        self._one_at_a_time = threading.Lock()

    def __call__(self, prompt: str) -> bool:
        task = prompt.partition("assistant")[0]
        with self._one_at_a_time:
            if len(self._first) < self._count:
                self._first.add(task)
            return task not in self._first


def say(prompt: str) -> str:
    """Add something else each time, so that there is a better and a worse."""
    return "That is all." if RESULT in prompt else call("add", n=next(numbers) % 7 + 1)


def attention(
    query: Any, key: Any, value: Any, starts_q: Any, starts_k: Any, *_: Any, **options: Any
) -> Any:
    """What the kernel computes, segment by segment: the last rows of a causal square."""
    assert options["causal"]
    shared = query.shape[1] // key.shape[1]
    out = torch.empty_like(query)
    for q0, q1, k0, k1 in zip(
        starts_q[:-1], starts_q[1:], starts_k[:-1], starts_k[1:], strict=True
    ):
        rows, columns = int(q1 - q0), int(k1 - k0)
        one, keys, values = (
            part.transpose(0, 1)
            for part in (
                query[q0:q1],
                key[k0:k1].repeat_interleave(shared, 1),
                value[k0:k1].repeat_interleave(shared, 1),
            )
        )
        mask = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        seen = torch.nn.functional.scaled_dot_product_attention(
            one, keys, values, attn_mask=mask, scale=options["softmax_scale"]
        )
        out[q0:q1] = seen.transpose(0, 1)
    return out


class Transfer:
    """Weights go nowhere: the answers are scripted."""

    def __init__(self) -> None:
        self.sent = 0

    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...

    def send_weights(self, weights: Iterator[tuple[str, Any]]) -> None:
        self.sent += bool(list(weights))


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    # The sessions of a worker that was killed are held for a while.
    with LocalServer(COUNTER, max_sessions=4) as one:
        yield one


@pytest.fixture(scope="module")
def env(server: LocalServer) -> Iterator[AgentEnv]:
    with AgentEnv(server.url) as client:
        yield client


@pytest.fixture(scope="module")
def folder(env: AgentEnv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned nothing."""
    tokenizer = tiny.build_tokenizer(env.dataset("eval")["prompt"], tools_of(env.factory()))
    path = tmp_path_factory.mktemp("model") / "model"
    models.save_model(tiny.build_model(tokenizer), tokenizer, path)
    return path


@pytest.fixture(scope="module")
def vllm(folder: Path) -> Iterator[StandIn]:
    tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(folder)
    # The two groups of step 1, and the one that the trainer reads ahead.
    with stopping(StandIn(tokenizer, say, AllButTheFirst(3))) as one:
        yield one


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimpleNamespace(flash_attn_varlen_func=attention)
    monkeypatch.setattr(packing, "_flash_attn", lambda: kernel)
    monkeypatch.setattr(trl_trainer, "get_peak_flops_per_device", lambda *_: None)
    monkeypatch.setattr(rollout_worker, "is_vllm_available", lambda: True)


def job_of(
    tmp_path: Path, server: LocalServer, vllm: StandIn, model: Path, **more: Any
) -> Job[AsyncGrpoConfig]:
    config = AsyncGrpoConfig(**CONFIG | {"env_url": server.url, "vllm_url": vllm.url} | more)
    where = {"out": tmp_path / "out", "metrics": tmp_path / "metrics.jsonl"}
    return Job(config=config, inputs={"model": model}, **where)


def go(job: Job[AsyncGrpoConfig], env: AgentEnv, stop: StopRequest, transfer: Transfer) -> Any:
    metrics = MetricsFile(job.metrics, max_steps=job.config.steps)
    trainer = program.async_trainer(job, env, metrics, stop, weight_transfer=transfer)
    program.learn(trainer, job, metrics, stop)
    return metrics.lines()


def test_it_trains_is_stopped_while_it_waits_and_goes_on_from_there(
    tmp_path: Path, server: LocalServer, vllm: StandIn, folder: Path, env: AgentEnv
) -> None:
    job = job_of(tmp_path, server, vllm, folder)
    stop, transfer = StopRequest(), Transfer()
    stop.listen()
    send = transfer.send_weights

    def signalled(weights: Iterator[tuple[str, Any]]) -> None:
        send(weights)
        if transfer.sent == 2:  # the first goes out at the start, the second after step 1
            os.kill(os.getpid(), signal.SIGTERM)

    transfer.send_weights = signalled  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        go(job, env, stop, transfer)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    state = json.loads((job.out / "checkpoint-1" / "rollout_state.json").read_text())
    assert state["model_version"] == 2
    first = MetricsFile(job.metrics, max_steps=3).lines()

    vllm.let(1000)
    lines = go(job, env, StopRequest(), Transfer())
    assert lines[:1] == first
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [(line["rollouts"], line["unscored"]) for line in lines] == [(4, 0)] * 3
    assert all(0 < line["reward"] < 1 for line in lines)
    assert [line["env/tool_calls"] for line in lines] == [1.0] * 3
    assert all("score/near" in line for line in lines)
    before, after = (
        models.load_model(str(path))[0].state_dict() for path in (folder, job.out / "model")
    )
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_a_checkpoint_that_does_not_say_where_its_rollouts_stood_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(JobFailed, match=r"rollout_state\.json is missing or cut short: remove"):
        program._check_rollout_state(tmp_path)


def test_lost_rollouts_are_counted_with_their_reasons_and_end_the_run(tmp_path: Path) -> None:
    episodes = tmp_path / "episodes.jsonl"
    trained_on = trainer_module.TrainedOn(EpisodeLog(episodes))
    lost = {"reward": None, "lost": "the server went away"}
    episodes.write_text(f"{json.dumps(lost)}\n" * 3 + json.dumps({"reward": 1.0}) + "\n")
    sample = SimpleNamespace(metrics={"reward": float("nan")}, completion=[], group_id=0)
    scored = SimpleNamespace(metrics={"reward": 1.0}, completion=[], group_id=1)
    trained_on.add(scored, dropped=False)
    trained_on.add(sample, dropped=True)
    for _ in range(2):
        trained_on.add(sample, dropped=False)
    trained_on.used(1)
    assert [one.reward for one in trained_on.take()] == [1.0]
    trained_on.used(9)
    metrics = MetricsFile(tmp_path / "metrics.jsonl", max_steps=3)
    progress = Progress(metrics, trained_on, guard=UnscoredGuard(0.5, 2))
    with pytest.raises(JobFailed, match=r"100% of the last 2 .* went away \(2 times\)"):
        progress.on_log(None, SimpleNamespace(global_step=1), None, logs={"reward": None})
    assert metrics.lines()[0]["unscored"] == 2


def test_a_worker_that_failed_fails_the_job_with_its_cause() -> None:
    worker = rollout_worker.AsyncRolloutWorker()
    worker._failed_event.set()
    worker._exception_info_queue = queue.SimpleQueue()  # its own takes a moment to be filled
    worker._exception_info_queue.put(("ServerDown", "http://there can't be reached", "a trace"))
    with pytest.raises(RuntimeError) as raised:
        worker.check_health(1.0)
    failure = trainer_module.worker_failure(raised.value)
    assert str(failure) == (
        "Rollout worker child has failed: ServerDown: http://there can't be reached"
    )
    assert trainer_module.worker_failure(RuntimeError("CUDA error")) is None


def test_a_worker_that_the_kernel_killed_is_noticed_while_the_trainer_waits() -> None:
    trainer = object.__new__(trainer_module.AsyncTrainer)
    trainer.stop, trainer.args = StopRequest(), SimpleNamespace(heartbeat_stale_after_s=300.0)
    process = SimpleNamespace(exitcode=None)
    trainer.rollout_worker = SimpleNamespace(_process=process, check_health=lambda _: None)
    watched = trainer_module.Watched(queue.Queue(), trainer._came, trainer._nothing_came)
    with pytest.raises(queue.Empty):
        watched.get(timeout=0.01)
    process.exitcode = -signal.SIGKILL
    with pytest.raises(JobFailed, match="worker's process ended, exit status -9: -9 is"):
        watched.get(timeout=0.01)


def test_without_a_gpu_the_program_ends_before_it_imports_a_trainer() -> None:
    with pytest.raises(ConfigError) as refused:
        check_machine("tiny", AsyncGrpoConfig())
    (vllm, gpu) = refused.value.faults
    assert vllm.startswith("vllm: isn't installed")
    assert gpu.startswith("program: async_grpo: needs an NVIDIA GPU")


def test_a_vllm_that_is_not_there_is_told_with_the_command_that_starts_it() -> None:
    with pytest.raises(JobFailed, match="vllm serve MODEL --weight-transfer-config"):
        program.wait_for_vllm("http://127.0.0.1:9", 0.0)
