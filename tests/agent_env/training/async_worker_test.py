"""TRL's real rollout worker, in its own spawned process, on an env server that dies."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from accelerate.state import PartialState

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.training import tiny
from agent_env.training.demonstrations import tools_of
from agent_env.training.rollout_worker import EpisodeLog, WorkerFactory
from agent_env.training.trl import Environment, Factory

from .vllm_stand_in import StandIn, call, rollout_worker, stopping

pytestmark = [pytest.mark.trl, pytest.mark.timeout(300)]

COUNTER = Path(__file__).parents[1] / "counter"
GROUP = 4
RESULT = "<tool_response>"


def say(prompt: str) -> str:
    """Add five twice, then stop."""
    return call("add", n=5) if prompt.count(RESULT) < 2 else "That is all."


def in_mid_rollout(prompt: str) -> bool:
    return prompt.count(RESULT) == 1


@dataclass
class Watchful:
    """A factory whose environments write down who uses them, and when two do at once."""

    factory: Factory
    notes: Path

    @property
    def policy(self) -> Any:
        return self.factory.policy

    @property
    def site(self) -> Any:
        return self.factory.site

    def __call__(self) -> Environment:
        environment = self.factory()
        session, busy = environment._session, threading.Lock()
        hold = session._hold

        def watched(talk: Any) -> Any:
            alone = busy.acquire(blocking=False)
            with self.notes.open("a") as notes:
                notes.write(json.dumps([alone, session.id, threading.get_ident()]) + "\n")
            try:
                return hold(talk)
            finally:
                if alone:
                    busy.release()

        session._hold = watched  # type: ignore[method-assign]
        return environment


@dataclass
class Rollouts:
    """The worker with everything it speaks to."""

    server: LocalServer
    model: StandIn
    worker: Any
    notes: Path
    episodes: EpisodeLog

    def group(self) -> list[float]:
        """The rewards of the next group, which is let go on from the middle of its rollouts."""
        self.model.wait_for(GROUP)
        self.model.let(GROUP)
        samples = [self.worker.rollout_buffer.get(timeout=60) for _ in range(GROUP)]
        return [sample.metrics["reward"] for sample in samples]


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollouts]:
    folder = tmp_path_factory.mktemp("worker")
    with (
        pytest.MonkeyPatch.context() as patched,
        LocalServer(COUNTER, max_sessions=GROUP, journal=folder / "journal") as server,
        AgentEnv(server.url, patience=0.2, reset_timeout=1.0, step_timeout=5.0) as env,
    ):
        dataset, factory = env.dataset("eval"), env.factory_for("eval")
        assert isinstance(factory, Factory)
        tokenizer = tiny.build_tokenizer(dataset["prompt"], tools_of(factory()))
        # Only the check for the package: nothing of vLLM's is used by the worker itself.
        patched.setattr(rollout_worker, "is_vllm_available", lambda: True)
        PartialState(cpu=True)  # the trainer's own doing; the worker's log needs it
        with stopping(StandIn(tokenizer, say, in_mid_rollout)) as model:
            made = Watchful(factory, folder / "notes.jsonl")
            worker = rollout_worker.AsyncRolloutWorker(
                model_name="tiny",
                dataset=dataset,
                reward_funcs=[],
                processing_class=tokenizer,
                eos_token_ids=[tokenizer.eos_token_id],
                environment_factory=WorkerFactory(made, episodes=folder / "episodes.jsonl"),  # type: ignore[arg-type]
                num_generations=GROUP,
                max_inflight_tasks=GROUP,
                vllm_server_url=model.url,
                max_tokens=64,
            )
            worker.start()
            try:
                yield Rollouts(
                    server, model, worker, made.notes, EpisodeLog(folder / "episodes.jsonl")
                )
            finally:
                model.let(1000)
                worker.stop()


# The order matters: each test goes on where the one before left the worker.


def test_the_factory_is_pickled_into_the_worker_and_its_rollouts_are_scored(
    rollouts: Rollouts,
) -> None:
    assert rollouts.group() == [1.0] * GROUP


def test_a_server_that_is_killed_in_mid_rollout_and_comes_back_costs_no_rollout(
    rollouts: Rollouts,
) -> None:
    rollouts.model.wait_for(GROUP)
    rollouts.server.restart()
    # Ten of twenty: an episode begun anew would stand at five.
    assert rollouts.group() == [0.5] * GROUP
    continued = [rollouts.episodes.of(0.5) for _ in range(GROUP)]
    assert [one and (one.continued > 0, one.lost) for one in continued] == [(True, None)] * GROUP


def test_a_server_that_is_gone_for_good_leaves_rollouts_unscored_and_the_worker_alive(
    rollouts: Rollouts,
) -> None:
    rollouts.model.wait_for(GROUP)
    rollouts.server.kill()
    rewards = rollouts.group() + rollouts.group()
    assert all(math.isnan(reward) for reward in rewards)
    lost = rollouts.episodes.of(None)
    assert lost is not None
    assert "can't be reached" in str(lost.lost)
    rollouts.worker.check_health(60.0)
    assert rollouts.worker._process.is_alive()


def test_no_session_was_ever_used_by_two_threads_at_once(rollouts: Rollouts) -> None:
    notes = [json.loads(line) for line in rollouts.notes.read_text().splitlines()]
    assert {alone for alone, _, _ in notes} == {True}
    threads: dict[str, set[int]] = {}
    for _, session, thread in notes:
        threads.setdefault(session, set()).add(thread)
    assert max(map(len, threads.values())) > 1, "nothing to see: each had a thread of its own"


def test_a_worker_that_was_killed_holds_nobody_up(rollouts: Rollouts) -> None:
    rollouts.worker._process.kill()
    rollouts.worker._process.join()
    import_module("agent_env.training.async_trainer").end_worker(
        rollouts.worker, rollouts.worker.stop
    )
    assert rollouts.worker._process is None
