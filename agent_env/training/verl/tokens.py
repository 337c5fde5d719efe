"""A rollout's tokens: what was sampled stays as it was sampled, whatever is added between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent_env.training.verl.reading import Message


@dataclass
class Tokens:
    """The prompt and the response so far, of a loop that knows how to add to them."""

    loop: Any
    """verl's AgentLoopBase."""
    ids: list[int]
    """Prompt and response."""
    prompt: int
    """How many of them are the prompt's."""
    room: int
    """How many tokens the response may have in all."""
    mask: list[int] = field(default_factory=list)
    """1 for each of the response's tokens that the model sampled."""
    logprobs: list[float] | None = None

    @property
    def left(self) -> int:
        """Tokens that the response may still take."""
        return self.room - len(self.mask)

    def cut(self, tokenizer: Any) -> bool:
        """Whether the room ended the last reply, rather than the model."""
        return self.left <= 0 and self.ids[-1] != tokenizer.eos_token_id

    async def sampled(self, ids: list[int], logprobs: list[float] | None) -> None:
        """Add what the model sampled."""
        if logprobs is not None and self.logprobs is None:
            self.logprobs = []
        merged, self.mask, self.logprobs = await self.loop.ct_merge_assistant_token(
            self.ids, ids, self.mask, self.logprobs, assistant_logprobs=logprobs
        )
        self.ids = merged.token_ids

    async def told(
        self, before: list[Message], after: list[Message], tools: list[Message]
    ) -> bool:
        """Add the messages that `after` has more; False, and nothing is added, for want of room.

        One more token than the text must fit: the model's next.
        """
        merged, mask, logprobs = await self.loop.ct_merge_context_msg(
            before, after, self.ids, self.mask, self.logprobs, tools=tools
        )
        if len(mask) >= self.room:
            return False
        self.ids, self.mask, self.logprobs = merged.token_ids, mask, logprobs
        return True
