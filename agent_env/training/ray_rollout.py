"""What rollouts under verl and under SkyRL share: an end without a reward, tools and a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_env.errors import SessionError
from agent_env.types import END_TURN, ToolSpec


class RolloutLost(SessionError):
    """The infrastructure lost the rollout: its server, its model server, or its time was up."""


def shown(tools: Sequence[ToolSpec], *, text_ends_turn: bool) -> list[dict[str, Any]]:
    """The tools as chat templates take them; `end_turn` only where plain text isn't one."""
    return [
        {"type": "function", "function": _function(tool)}
        for tool in tools
        if not (text_ends_turn and tool.name == END_TURN)
    ]


def prompt_ids(tokenizer: Any, messages: Sequence[Any], **named: Any) -> list[int]:
    """The prompt's tokens; `named` are for the chat template, such as its tools."""
    ids: list[int] = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False, **named
    )
    return ids


def too_long(lengths: Mapping[str, int], most: int) -> Iterator[str]:
    """The fault of prompts over so many tokens, if there are any; `lengths` by their names."""
    over = {name: length for name, length in lengths.items() if length > most}
    if over:
        name = max(over, key=over.__getitem__)
        yield (
            f"prompt_tokens: {len(over)} of {len(lengths)} prompts are longer than {most} tokens"
            f" with their tools; the longest is {name} with {over[name]}: set it to that"
        )


def _function(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
    }
