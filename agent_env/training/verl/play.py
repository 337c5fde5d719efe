"""One rollout: the model samples, the environment answers, until the episode or the room ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from agent_env.errors import ToolError
from agent_env.training._calls import BadCall, Reply, ToolCall
from agent_env.training._episode import AsyncEpisode
from agent_env.training.ray_rollout import RolloutLost, shown
from agent_env.training.verl.peer import Peer, has_turns
from agent_env.training.verl.reading import Message, Reader, answered, said
from agent_env.training.verl.tokens import Tokens
from agent_env.types import ToolSpec


class Play:
    """Plays with the parts of a loop, and keeps what the loop's output is made of."""

    def __init__(self, loop: Any, peer: Peer, reader: Reader, episode: AsyncEpisode) -> None:
        self._loop = loop
        self._peer = peer
        self._reader = reader
        self._request = uuid4().hex
        """One for the whole rollout: its turns go to the model server that has its cache."""
        self.episode = episode
        self.tokens = Tokens(loop, [], 0, 0)
        self.replies = 0
        self.told = 0
        self.extra: dict[str, Any] = {}
        self.routed_experts: Any = None
        self.preempted = -1
        self.seconds = {"generate_sequences": 0.0, "tool_calls": 0.0}

    async def play(self, row: dict[str, Any], chosen: dict[str, Any], sampling: Any) -> None:
        """Raises RolloutLost, PromptTooLong, SessionError, and what a model server raises."""
        tools = await self._peer.tools(chosen["split"])
        self.episode.turns = has_turns(tools)
        messages = [dict(message) for message in row["raw_prompt"]]
        with self._timing("tool_calls"):
            appended = await self.episode.open(**chosen)
        if appended:
            messages[-1]["content"] += appended
        schemas = shown(tools, text_ends_turn=self._peer.settings.text_ends_turn)
        await self._begin(messages, schemas)
        while self.episode.rollout.open:
            reply = await self._sampled(sampling, tools)
            news = await self._news(reply)
            if not news or not await self._merged(messages, said(reply), news, schemas):
                break
        with self._timing("tool_calls"):
            await self.episode.settle()

    async def _begin(self, messages: list[Message], tools: list[Message]) -> None:
        ids = await self._loop.ct_build_initial_tokens(messages, tools=tools)
        room = self._loop.rollout_config.response_length
        self.tokens = Tokens(self._loop, list(ids), len(ids), room)

    async def _sampled(self, sampling: dict[str, Any], tools: list[ToolSpec]) -> Reply:
        tokens, stops = self.tokens, self._reader.stops
        own: dict[str, Any] = {"max_tokens": tokens.left}
        if stops:
            own["stop_token_ids"] = [*(sampling.get("stop_token_ids") or []), *stops]
        with self._timing("generate_sequences"):
            output = await self._loop.server_manager.generate(
                request_id=self._request,
                prompt_ids=list(tokens.ids),
                sampling_params={**sampling, **own},
            )
        ids = list(output.token_ids)[: tokens.left]
        if not ids:
            raise RolloutLost("the model server returned no token")
        self._carry(output)
        await tokens.sampled(ids, output.log_probs[: len(ids)] if output.log_probs else None)
        self.replies += 1
        return await self._reader.read(ids, tools)

    def _carry(self, output: Any) -> None:
        """What verl wants to know of each generation: the weights' versions above all."""
        newest = output.extra_fields.get("max_global_steps")
        self.extra = {**output.extra_fields, **self.extra}
        if newest is not None:
            self.extra["max_global_steps"] = newest
        if output.num_preempted is not None:
            self.preempted = max(self.preempted, 0) + output.num_preempted
        if output.routed_experts is not None:
            self.routed_experts = output.routed_experts

    async def _news(self, reply: Reply) -> list[Message]:
        """What the environment says to the reply; nothing when the rollout's talk is over."""
        if reply.in_thought:
            return []
        with self._timing("tool_calls"):
            if reply.calls:
                return await self._called(reply)
            return await self._turned(reply)

    async def _called(self, reply: Reply) -> list[Message]:
        most = self._loop.rollout_config.multi_turn.max_assistant_turns
        if most and self.replies >= most:
            return []
        news = []
        for call in reply.calls:
            news.append(answered(call, await self._call(call)))
            if not self.episode.rollout.open:
                return []
        return news

    async def _call(self, call: ToolCall | BadCall) -> str:
        if isinstance(call, BadCall):
            self.episode.rollout.tool_calls += 1
            self.episode.rollout.tool_failures += 1
            return call.why
        try:
            return await self.episode.call(call.name, call.arguments)
        except ToolError as error:
            return str(error)

    async def _turned(self, reply: Reply) -> list[Message]:
        """A reply in plain text answers the turn, unless it was cut short by the room."""
        if not self._peer.settings.text_ends_turn or self.tokens.cut(self._loop.tokenizer):
            return []
        prompt = await self.episode.answer(reply.text) if self.episode.turns else None
        return [] if prompt is None else [{"role": "user", "content": prompt}]

    async def _merged(
        self, messages: list[Message], reply: Message, news: list[Message], tools: list[Message]
    ) -> bool:
        messages.append(reply)
        before = list(messages)
        messages.extend(news)
        self.told += 1
        return await self.tokens.told(before, messages, tools)

    @contextmanager
    def _timing(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] += time.monotonic() - began
