"""Three groups of two rollouts through verl's own queue and sampler; prints what is trained on.

A process of its own, started with a folder: Ray opens ports and keeps threads.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
import transfer_queue as tq
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from agent_env.client import AgentEnv
from agent_env.training.verl import LoopSettings, rows, write_loop_file
from tests.agent_env.conftest import COUNTER
from tests.agent_env.training import verl_harness as harness
from tests.agent_env.training.listening import addresses, is_loopback

STEP = 7
UNITS = "backend.SimpleStorage.num_data_storage_units"
"""Processes that keep the rows; verl starts eight."""
PENDING = {"is_prompt": True, "status": "pending", "global_steps": STEP}
TRAJECTORY = {"step": STEP, "sample_index": 0, "rollout_n": 0, "validate": False}


def main(folder: Path) -> None:
    """Play, sample, print."""
    run = harness.verl_run(folder, rollouts_per_prompt=2)
    harness.write_model(Path(run.model))
    config = harness.composed(run, f"transfer_queue.{UNITS}=1")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    tq.init(config.transfer_queue)
    groups = _groups()
    with AgentEnv.local(COUNTER, max_sessions=4) as env:
        write_loop_file(run.loop_file, LoopSettings(url=env.url, sessions=4, scores=("near",)))
        worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class(config, None)
        row = rows(env, "train")[0]
        for uid, scripts in groups.items():
            _play(worker, uid, row, scripts)
        batch, _ = _buffer(config).sample(STEP, "train", len(groups))
        read = tq.kv_batch_get(keys=batch.keys, partition_id="train")
        rewards = [float(reward.sum()) for reward in read["rm_scores"]]
        _play(worker, "alone", row, groups["dead"])
        end = _end(_buffer(config))
    listens = addresses(os.getpid())
    told = {
        "keys": sorted(batch.keys),
        "rewards": rewards,
        "end": end,
        "listens": len(listens),
        "abroad": [str(one) for one in listens if not is_loopback(one)],
    }
    sys.stdout.write(json.dumps(told) + "\n")
    tq.close()
    ray.shutdown()


def _play(worker: Any, uid: str, row: dict[str, Any], scripts: tuple[Any, Any]) -> None:
    tq.kv_batch_put(keys=[uid], partition_id="train", tags=[PENDING])
    worker.llm_client = harness.InTurn(*scripts)
    asyncio.run(worker._run_prompt(_prompt(uid, row), {"temperature": 1.0}, TRAJECTORY))


def _end(buffer: Any) -> str:
    """What a step says all of whose rollouts were lost."""
    try:
        buffer.sample(STEP, "train", 1)
    except RuntimeError as error:
        return str(error)
    return "it went on"


def _groups() -> dict[str, tuple[Any, Any]]:
    good = harness.Script(harness.call("add", n=5), "done")
    bad = harness.Script(harness.call("crash"))
    return {"clean": (good, good), "half": (good, bad), "dead": (bad, bad)}


def _prompt(uid: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row as verl's trainer sends it to a worker."""
    own = {name: value for name, value in row.items() if name != "prompt"}
    return {**own, "uid": uid, "index": 0, "global_steps": STEP, "raw_prompt": row["prompt"]}


def _buffer(config: Any) -> Any:
    sampler = config.trainer.v1.sampler
    return ReplayBuffer(
        trainer_mode="sync",
        trainer_config=config.trainer.v1.sync,
        max_off_policy_threshold=sampler.max_off_policy_threshold,
        max_off_policy_strategy=sampler.max_off_policy_strategy,
        sampler_kwargs=sampler.sampler_kwargs,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
