"""TRL's AsyncGRPOTrainer the way our program uses it.

Import it only when the process is settled, and unsloth, if it is used, imported: unsloth rewrites
the class that stands below ours.
"""

from __future__ import annotations

import math
import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import PrinterCallback
from trl.experimental.async_grpo import AsyncGRPOTrainer

from agent_env.training import trained_on
from agent_env.training.checkpoints import checkpoint_step
from agent_env.training.guard import UnscoredGuard
from agent_env.training.job import JobFailed
from agent_env.training.metrics import MetricsFile
from agent_env.training.progress import TRAINER_NUMBERS, Progress, StopAtStepEnd
from agent_env.training.rollout_worker import EpisodeLog
from agent_env.training.rollouts import Rollout
from agent_env.training.stopping import Stopped, StopRequest

NUMBERS = TRAINER_NUMBERS | {
    "seconds": "perf/step_s",
    "waited_s": "perf/rollout_wait_s",
    "staleness": "sample/staleness_mean",
    "dropped": "sample/dropped_stale_total",
}
"""Our name and the trainer's; `dropped` counts rollouts that were too old to train on."""


class AsyncTrainer(AsyncGRPOTrainer):  # type: ignore[misc]
    """Counts every rollout that it trains on, and ends where its rollouts end."""

    def __init__(
        self,
        *,
        stop: StopRequest,
        metrics: MetricsFile,
        episodes: EpisodeLog,
        guard: UnscoredGuard | None = None,
        **arguments: Any,
    ) -> None:
        self.stop = stop
        self.trained_on = TrainedOn(episodes)
        progress = Progress(metrics, self.trained_on, guard=guard, numbers=NUMBERS)
        super().__init__(callbacks=[progress, StopAtStepEnd(stop)], **arguments)
        progress.tokens = self.args.max_completion_length
        self.remove_callback(PrinterCallback)
        self.rollout_worker.stop = partial(
            end_worker, self.rollout_worker, self.rollout_worker.stop
        )
        samples: Any = self.rollout_worker.rollout_buffer
        self.rollout_queue = Watched(samples, self._came, self._nothing_came)

    def train(self, resume_from_checkpoint: str | None = None, **rest: Any) -> Any:
        """Train; a request to stop is answered with a checkpoint at a step's end.

        Raises JobFailed when the rollout worker or vLLM is gone, Stopped when the rollouts that
        would end the step don't come any more. Adapters on their way to vLLM are no results: they
        go through a folder of their own.
        """
        try:
            with self.stop.held(), TemporaryDirectory() as self._lora_dir:
                return super().train(resume_from_checkpoint=resume_from_checkpoint, **rest)
        except (RuntimeError, TimeoutError) as error:
            if self.stop.asked:  # the worker may have died of the same signal
                self._save_what_there_is()
                raise Stopped from None
            if (failure := worker_failure(error)) is None:
                raise
            raise failure from None

    def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
        """Train on a batch, and count its rollouts."""
        tokens, mean = (float(inputs[name][0]) for name in ("global_n_forward_tokens", _MEAN))
        loss = super().training_step(model, inputs, *rest)
        self.trained_on.used(round(tokens / mean))
        return loss

    def _save_checkpoint(self, *arguments: Any) -> None:
        """What it was trained on goes first: a checkpoint that is complete has it."""
        trained_on.carry_to_checkpoint(Path(self.args.output_dir), self.state.global_step)
        super()._save_checkpoint(*arguments)

    def create_model_card(self, *_arguments: Any, **_named: Any) -> None:
        """No card: the run's own record says more than the trainer's boilerplate."""

    def _came(self, sample: Any) -> None:
        stale = self.model_version - sample.model_version > self.args.max_staleness
        self.trained_on.add(sample, dropped=stale)

    def _nothing_came(self) -> None:
        """Once every few seconds while the trainer waits for rollouts."""
        if self.stop.asked:
            self._save_what_there_is()
            raise Stopped
        process = getattr(self.rollout_worker, "_process", None)
        if process is not None and process.exitcode:
            self.rollout_worker.check_health(self.args.heartbeat_stale_after_s)
            raise JobFailed(
                f"the rollout worker's process ended, exit status {process.exitcode}: -9 is the "
                "kernel's answer to too little memory; see the job's log"
            )

    def _save_what_there_is(self) -> None:
        step = self.state.global_step
        if step and checkpoint_step(Path(self.args.output_dir, f"checkpoint-{step}")) is None:
            self._save_checkpoint(self.model, None)


_MEAN = "mean_seq_len"
STOP_S = 3.0
"""What the worker gets to say goodbye to the env server."""


class TrainedOn:
    """The rollouts that were trained on since the last line, in the order in which they came."""

    def __init__(self, episodes: EpisodeLog) -> None:
        self._episodes = episodes
        self._ahead: deque[Rollout] = deque()
        self._used: list[Rollout] = []

    def add(self, sample: Any, *, dropped: bool) -> None:
        """A sample of the trainer's, which it is going to train on, or to throw away.

        One rollout may be several of them; the first has the episode.
        """
        reward = sample.metrics["reward"]
        reward = None if math.isnan(reward) else reward
        episode = self._episodes.of(reward)
        if not dropped:
            rollout = Rollout(
                reward=reward,
                completion=sample.completion,
                row={"task_id": sample.group_id},
                lost=episode.lost if episode is not None else None,
                episode=episode,
            )
            self._ahead.append(rollout)

    def used(self, count: int) -> None:
        """The next `count` have been trained on."""
        for _ in range(min(count, len(self._ahead))):
            self._used.append(self._ahead.popleft())

    def take(self) -> list[Rollout]:
        """Those since the last call."""
        taken, self._used = self._used, []
        return taken


class Watched:
    """The worker's queue, as far as the trainer's dataset uses it."""

    def __init__(
        self, samples: Any, came: Callable[[Any], None], nothing_came: Callable[[], None]
    ) -> None:
        self._samples = samples
        self._came = came
        self._nothing_came = nothing_came

    def get(self, *arguments: Any, **named: Any) -> Any:
        """The next sample. Raises queue.Empty."""
        try:
            sample = self._samples.get(*arguments, **named)
        except queue.Empty:
            self._nothing_came()
            raise
        self._came(sample)
        return sample

    def qsize(self) -> int:
        """How many wait."""
        size: int = self._samples.qsize()
        return size


def end_worker(worker: Any, stop: Callable[[], None]) -> None:
    """In place of TRL's `stop`, which waits 15 s for rollouts that nobody needs any more.

    And for ever if the worker has died: its event's `set` waits for who waits for the event.
    """
    process = getattr(worker, "_process", None)
    if process is None:
        stop()
        return
    if process.is_alive():
        threading.Thread(target=worker._stop_event_mp.set, daemon=True).start()
        process.join(STOP_S)
        process.kill()
        process.join()
    worker._process = None


def worker_failure(error: BaseException) -> JobFailed | None:
    """What the trainer's error means, if it is about the worker or vLLM."""
    said = str(error)
    if isinstance(error, TimeoutError) and "vLLM" in said:
        return JobFailed(said)
    if "olloutWorker" not in said and "ollout worker" not in said:
        return None
    cause = str(error.__cause__ or "").partition("\n")[0]
    return JobFailed(f"{said.partition(';')[0].rstrip('.')}: {cause or 'see the log'}")
