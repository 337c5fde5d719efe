"""SkyRL's own generator, for rollouts that may be lost.

A rollout takes a session's place before it takes a thread of SkyRL's pool, so that those who wait
for room never hold the threads that would make room. It ends by its own deadline. Whatever fails
in it fails alone: its session is closed, its row is unscored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator, TrajectoryOutput

from agent_env.errors import SessionError, TooManyUnscored
from agent_env.training._episode import Rollout
from agent_env.training.guard import UnscoredGuard
from agent_env.training.job import JobFailed
from agent_env.training.ray_rollout import prompt_ids
from agent_env.training.skyrl._rows import at_the_end, imputed, masked, numbers
from agent_env.training.skyrl._seat import SEAT, Seat
from agent_env.training.skyrl._server import server_for
from agent_env.training.skyrl.settings import ENV_CLASS, EnvSettings

_log = logging.getLogger(__name__)

UNSCORED = "unscored"
"""The stop reason of such a row, and the key of its metric."""
_ROLLOUT = "rollout"
"""Where a row's record travels, among its environment's numbers."""
_THREADS = 32

_REFUSED = {
    "batched": "has no turns",
    "step_wise_trajectories": "splits a rollout into rows",
    "use_conversation_multi_turn": "must stay true: a tool's answer is a message of its own",
}


class AgentEnvGenerator(SkyRLGymGenerator):  # type: ignore[misc]
    """Takes SkyRL's arguments, and the adapter's settings.

    Raises ValueError for options that it can't keep its promises under, ServerDown where the
    server doesn't answer.
    """

    def __init__(self, *arguments: Any, settings: EnvSettings, **named: Any) -> None:
        super().__init__(*arguments, **named)
        _check_options(self.generator_cfg)
        self._settings = settings
        room = server_for(settings).capacity()
        self._capacity = room or self.skyrl_gym_cfg.max_env_workers or _THREADS
        self._guard = UnscoredGuard(settings.max_unscored, settings.judged_rollouts)
        self._places: tuple[Any, asyncio.Semaphore] | None = None
        self._running: set[Any] = set()

    async def generate(self, input_batch: Any, disable_tqdm: bool = False) -> Any:
        """A batch of rollouts. Raises JobFailed for a prompt without room, and TooManyUnscored
        when most of the recent ones were lost; no session is left open then."""
        for prompt in {id(prompt): prompt for prompt in input_batch["prompts"]}.values():
            self._check_prompt(prompt)
        try:
            output = await super().generate(input_batch, disable_tqdm=disable_tqdm)
        except BaseException:
            await self._cancel_rest()
            raise
        self._account(output, input_batch)
        return output

    async def agent_loop(
        self, prompt: Any, env_class: str, env_extras: Any, *rest: Any, **named: Any
    ) -> Any:
        """One rollout; only a prompt without room raises."""
        if env_class != ENV_CLASS:
            return await super().agent_loop(prompt, env_class, env_extras, *rest, **named)
        task = asyncio.current_task()
        self._running.add(task)
        try:
            async with self._admission():
                return await self._rollout(prompt, env_class, env_extras, *rest, **named)
        finally:
            self._running.discard(task)

    async def _rollout(
        self, prompt: Any, env_class: str, env_extras: Any, *rest: Any, **named: Any
    ) -> Any:
        seat, why = Seat(self._check_prompt), "cancelled"
        extras = {**env_extras, SEAT: seat}
        try:
            async with asyncio.timeout(self._settings.deadline_s) as limit:
                return await super().agent_loop(prompt, env_class, extras, *rest, **named)
        except JobFailed:
            raise
        except Exception as error:
            late = f"no end within {self._settings.deadline_s:g} s"
            why = late if limit.expired() else _told(error)
        finally:
            # Also when cancelled: nobody else knows of the session.
            await asyncio.shield(asyncio.to_thread(_leave, seat, why))
        return self._nothing(prompt, seat, why)

    def _setup_env_extras(
        self, env_class: str, env_extras: Any, sampling_params: Any, trajectory_id: Any
    ) -> Any:
        extras = super()._setup_env_extras(env_class, env_extras, sampling_params, trajectory_id)
        named = {} if trajectory_id is None else {"trajectory_id": trajectory_id.to_string()}
        return {**extras, **named}

    def _post_process_agent_loop_output(
        self, agent_loop_output: Any, env_extras: Any, trajectory_id: Any
    ) -> Any:
        output = super()._post_process_agent_loop_output(
            agent_loop_output, env_extras, trajectory_id
        )
        env = env_extras[SEAT].env if SEAT in env_extras else None
        if env is None:
            return output
        if not output.response_ids:
            self._pad(output)
        # An episode that the length ended is settled when it is closed, after SkyRL's last look.
        output.env_metrics = env.get_metrics() | {_ROLLOUT: env.outcome()}
        output.reward = at_the_end(env.reward or 0.0, len(output.response_ids))
        if env.unscored is not None:
            output.stop_reason = UNSCORED
        return output

    def _pad(self, output: Any) -> None:
        """Every later step of SkyRL's takes a row of at least one token."""
        output.response_ids, output.loss_mask = [self.tokenizer.eos_token_id], [0]
        if output.rollout_logprobs is not None:
            output.rollout_logprobs = [0.0]

    def _nothing(self, prompt: Any, seat: Seat, why: str) -> TrajectoryOutput:
        env = seat.env
        lost = Rollout(started=True, lost=why) if env is None else env.outcome(why)
        known = {} if env is None else env.get_metrics()
        return TrajectoryOutput(
            response_ids=[self.tokenizer.eos_token_id],
            reward=[0.0],
            stop_reason=UNSCORED,
            loss_mask=[0],
            prompt_ids=self._prompt_ids(prompt),
            rollout_logprobs=[0.0],
            env_metrics=known | {UNSCORED: 1.0, _ROLLOUT: lost},
            e2e_time=0.0,
        )

    def _account(self, output: Any, batch: Any) -> None:
        """Mask and impute, count and tell. Raises TooManyUnscored."""
        ours = [metrics.pop(_ROLLOUT, None) for metrics in output["env_metrics"]]
        unscored = [one is not None and one.reward is None for one in ours]
        told = numbers(output["rewards"], unscored, [one for one in ours if one is not None])
        masked(output, unscored)
        phase = getattr(batch.get("batch_metadata"), "training_phase", "train")
        # An eval's mean is over all rows: a lost one must not pull it towards 0.
        none = told.get("env/reward_mean", 0.0) if phase == "eval" else 0.0
        groups = _groups(batch)
        output["rewards"] = imputed(output["rewards"], groups, unscored, of_none=none)
        output["rollout_metrics"] = {**(output["rollout_metrics"] or {}), **told}
        self._judge(ours)

    def _judge(self, rollouts: Sequence[Rollout | None]) -> None:
        for one in rollouts:
            if one is not None:
                self._guard.count(one.reward is not None, one.lost)
        if why := self._guard.tripped:
            raise TooManyUnscored(
                f"{why}. Mend the env server, then start again: the run goes on from its last"
                " checkpoint"
            )

    def _admission(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._places is None or self._places[0] is not loop:
            self._places = loop, asyncio.Semaphore(self._capacity)
        return self._places[1]

    async def _cancel_rest(self) -> None:
        """SkyRL leaves the siblings of a rollout that raised running."""
        rest = self._running - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _check_prompt(self, prompt: Any) -> None:
        tokens, most = len(self._prompt_ids(prompt)), self.generator_cfg.max_input_length
        if tokens > most:
            start = str(prompt[-1]["content"])[:60]
            raise JobFailed(
                f"a prompt has {tokens} tokens, generator.max_input_length is {most}: raise it, "
                f"or leave out the task that begins {start!r}"
            )

    def _prompt_ids(self, prompt: Any) -> list[int]:
        return prompt_ids(self.tokenizer, prompt, **self.generator_cfg.chat_template_kwargs)


def _told(error: Exception) -> str:
    if isinstance(error, SessionError):
        return str(error)
    _log.warning("rollout unscored", exc_info=error)
    return f"{type(error).__name__}: {error}"


def _leave(seat: Seat, why: str) -> None:
    if seat.env is not None:
        seat.env.abandon(why)


def _groups(batch: Any) -> Sequence[str]:
    """Whose rollouts share a baseline; each its own where SkyRL names none."""
    ids = batch.get("trajectory_ids")
    if ids is None:
        return [str(row) for row in range(len(batch["prompts"]))]
    return [one.instance_id for one in ids]


def _check_options(config: Any) -> None:
    for name, why in _REFUSED.items():
        if getattr(config, name) != (name == "use_conversation_multi_turn"):
            raise ValueError(f"generator.{name}: {why}; agent_env's generator can't use it")
    if config.chat_template.name_or_path or config.inference_engine.enable_return_routed_experts:
        raise ValueError(
            "generator.chat_template and enable_return_routed_experts need every token to be"
            " generated: agent_env's generator can't use them"
        )
