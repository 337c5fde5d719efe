"""verl's agent loop on an env server. verl builds one for each rollout, from the loop file.

What the infrastructure does ends in `RolloutLost`, which verl drops from the rollout's group; a
reward is the environment's own or there is none. The session is opened once and closed always.
"""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from typing import Any

from agent_env.errors import NotInstalled
from agent_env.training._episode import AsyncEpisode, Rollout
from agent_env.training.ray_rollout import RolloutLost
from agent_env.training.verl.dataset import AGENT_NAME, MADE_BY, names_task
from agent_env.training.verl.errors import PromptTooLong
from agent_env.training.verl.loop_file import LoopSettings, settings_of
from agent_env.training.verl.peer import Peer, peer_of
from agent_env.training.verl.play import Play
from agent_env.training.verl.reading import Reader

try:
    from verl.experimental.agent_loop.agent_loop import (
        AgentLoopBase,
        AgentLoopMetrics,
        AgentLoopOutput,
    )
    from verl.experimental.agent_loop.tool_parser import ToolParser
except ModuleNotFoundError as error:
    if error.name != "verl":
        raise
    raise NotInstalled(
        "verl isn't installed here: on a box `pins: verl`, else"
        " pip install --no-deps -r templates/pins/verl.txt"
    ) from None

_OURS = {field.name for field in fields(LoopSettings)}


# Not verl's `@register`: verl imports this module for the first rollout, and the decorator would
# then replace the loop file's entry by one without its keys.
class AgentEnvLoop(AgentLoopBase):  # type: ignore[misc]
    """One rollout of a dataset row. The loop file's keys come as arguments, among verl's own."""

    def __init__(
        self, *args: Any, name: str = AGENT_NAME, tools: Any = None, **given: Any
    ) -> None:
        del name, tools  # the loop's own name; verl's tools, which are the same for every row
        ours = {key: given.pop(key) for key in _OURS & given.keys()}
        super().__init__(*args, **given)
        config = self.rollout_config
        settings = settings_of(ours)
        self._peer: Peer = peer_of(settings, config.agent.num_workers)
        parser = ToolParser.get_tool_parser(config.multi_turn.format, self.tokenizer)
        self._reader = Reader(config.multi_turn.format, self.tokenizer, parser)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """The rollout. Raises RolloutLost, PromptTooLong, TooManyUnscored."""
        peer = self._peer
        peer.expect_luck(row)
        async with peer.seats():
            peer.expect_luck(row)
            episode = AsyncEpisode(peer.env.async_session(), turns=True)
            play = Play(self, peer, self._reader, episode)
            try:
                await self._bounded(play, row, _chosen(row), sampling_params)
                output = self._output(play)
            except Exception as error:
                peer.count(_lost(episode.rollout, _told(error)), row)
                raise
            finally:
                await episode.close()
            peer.count(episode.rollout, row)
        return output

    async def _bounded(
        self, play: Play, row: dict[str, Any], chosen: dict[str, Any], sampling: dict[str, Any]
    ) -> None:
        """Play within the rollout's own deadline: verl has none."""
        seconds = self._peer.settings.rollout_s
        try:
            async with asyncio.timeout(seconds) as limit:
                await play.play(row, chosen, sampling)
        except (RolloutLost, PromptTooLong):
            raise
        except Exception as error:
            late = f"the rollout wasn't over within {seconds:g} s"
            raise RolloutLost(late if limit.expired() else _told(error)) from error
        rollout = play.episode.rollout
        if rollout.lost is not None or rollout.reward is None:
            raise RolloutLost(rollout.lost or "the environment gave no reward")

    def _output(self, play: Play) -> AgentLoopOutput:
        tokens, rollout = play.tokens, play.episode.rollout
        facts = self._peer.facts(rollout)
        return AgentLoopOutput(
            prompt_ids=tokens.ids[: tokens.prompt],
            response_ids=tokens.ids[tokens.prompt :],
            response_mask=tokens.mask,
            response_logprobs=tokens.logprobs,
            routed_experts=play.routed_experts,
            reward_score=rollout.reward,
            num_turns=play.replies + play.told + 1,
            metrics=AgentLoopMetrics(num_preempted=play.preempted, **play.seconds),
            extra_fields={
                **play.extra,
                "turn_scores": [],
                "tool_rewards": [],
                "reward_extra_info": facts,
            },
        )

    def _cap_text_prompt_length(self, prompt_ids: list[int]) -> list[int]:
        """verl would cut the prompt's left side, which is where the tools are."""
        most = self.rollout_config.prompt_length
        if len(prompt_ids) > most:
            raise PromptTooLong(
                f"the prompt with its tools has {len(prompt_ids)} tokens, over"
                f" data.max_prompt_length={most}: set that to {len(prompt_ids)} or more"
            )
        return prompt_ids


def _lost(rollout: Rollout, why: str) -> Rollout:
    """What was scored on the way isn't the rollout's."""
    return replace(rollout, lost=rollout.lost or why, reward=None, scores={})


def _told(error: Exception) -> str:
    ours = isinstance(error, RolloutLost | PromptTooLong)
    return str(error) if ours else f"{type(error).__name__}: {error}"


def _chosen(row: dict[str, Any]) -> dict[str, Any]:
    """What a session is opened with. Raises RolloutLost for a row that isn't ours."""
    told = row.get("extra_info") or {}
    if not names_task(row):
        raise RolloutLost(f"the row's extra_info names no split and index: {MADE_BY}")
    seed = {} if told.get("seed") is None else {"seed": int(told["seed"])}
    return {"split": str(told["split"]), "index": int(told["index"]), **seed}
