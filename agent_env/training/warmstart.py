"""Supervised training on demonstrations: a plain loop, small enough to read.

Loss on the assistant's turns only, and more on the token that decides: where an argument's value
begins. Without that weight a tiny model learns the brackets and never looks at the day.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from agent_env.training.config import ConfigError
from agent_env.training.demonstrations import Conversation

_BROKEN_OFF = (
    "config.model: its chat template begins a turn otherwise than it shows one that was made; set "
    "config.thinking the other way, or take a model whose template doesn't"
)
WARM_UP_STEPS = 20
GRAD_NORM = 1.0
WEIGHT_DECAY = 0.01


@dataclass(frozen=True)
class Example:
    """A conversation as token ids, with each token's weight in the loss."""

    ids: list[int]
    weights: list[float]


def to_example(
    tokenizer: Any,
    tools: Sequence[Any],
    talk: Conversation,
    *,
    decision_weight: float,
    rendering: Mapping[str, Any] | None = None,
) -> Example:
    """Render, tokenise, and weigh; `rendering` is what else the chat template is told.

    Raises ConfigError when the template doesn't go on as it begins a turn: the model would be
    taught another prompt than it is going to be asked with.
    """

    def render(messages: Conversation, *, prompt: bool = False) -> str:
        text: str = tokenizer.apply_chat_template(
            messages,
            tools=list(tools),
            tokenize=False,
            add_generation_prompt=prompt,
            **(rendering or {}),
        )
        return text

    text = render(talk)
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    spans: list[tuple[int, int]] = encoded["offset_mapping"]
    weights = [0.0] * len(spans)
    for turn, message in enumerate(talk):
        if message["role"] != "assistant":
            continue
        prompt = render(talk[:turn], prompt=True)
        if not text.startswith(prompt):
            raise ConfigError([_BROKEN_OFF])
        start = len(prompt)
        # The newline after the turn's end is the template's: the model stops before it.
        stop = len(render(talk[: turn + 1]).rstrip("\n"))
        decisions = {start + at for at in _value_starts(text[start:stop], message)}
        for i, (first, last) in enumerate(spans):
            if start <= first and last <= stop:
                decides = any(first <= at < last for at in decisions)
                weights[i] = decision_weight if decides else 1.0
    return Example(list(encoded["input_ids"]), weights)


def warm_start(
    model: Any,
    examples: Sequence[Example],
    *,
    pad: int,
    steps: int,
    batch_rows: int,
    learning_rate: float,
    rng: random.Random,
    rows_at_once: int | None = None,
) -> Iterator[float]:
    """Train in place what may be trained; yields each step's loss.

    The rate warms up, then falls linearly to 0. A step's rows go through the model in pieces of
    `rows_at_once`, with the same gradient.
    """
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=WEIGHT_DECAY)
    model.train()
    for step in range(steps):
        rate = learning_rate * min(1.0, (step + 1) / WARM_UP_STEPS) * (1 - step / steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = _backward(model, rng.choices(examples, k=batch_rows), pad, rows_at_once)
        torch.nn.utils.clip_grad_norm_(trained, GRAD_NORM)
        optimizer.step()
        yield loss


def _backward(model: Any, chosen: Sequence[Example], pad: int, rows_at_once: int | None) -> float:
    """The loss over all of them, and its gradient, piece by piece."""
    piece = rows_at_once or len(chosen)
    total = sum(sum(example.weights[1:]) for example in chosen)
    whole = 0.0
    for start in range(0, len(chosen), piece):
        loss = _loss(model, chosen[start : start + piece], pad) / total
        loss.backward()
        whole += float(loss.detach())
    return whole


def _loss(model: Any, chosen: Sequence[Example], pad: int) -> Any:
    """The weighted sum over the tokens."""
    width = max(len(example.ids) for example in chosen)
    ids = torch.tensor([_padded(example.ids, width, pad) for example in chosen])
    seen = torch.tensor([_padded([1] * len(example.ids), width, 0) for example in chosen])
    weights = torch.tensor([_padded(example.weights, width, 0.0) for example in chosen])[:, 1:]
    ids, seen, weights = (tensor.to(model.device) for tensor in (ids, seen, weights))
    with _precision(model.device):
        logits = model(input_ids=ids, attention_mask=seen).logits[:, :-1]
    targets = ids[:, 1:]
    logits = logits.float().transpose(1, 2)
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return (losses * weights).sum()


def _precision(device: Any) -> AbstractContextManager[Any]:
    """Mixed precision on a GPU, as the trainer has it; on a CPU the weights' own."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def _padded(values: list[Any], width: int, filler: Any) -> list[Any]:
    return values + [filler] * (width - len(values))


def _value_starts(text: str, message: dict[str, Any]) -> list[int]:
    """Where in the turn's text the arguments' values begin, behind an opening quote."""
    starts = []
    for call in message.get("tool_calls") or []:
        for name, value in call["function"]["arguments"].items():
            key = f"{json.dumps(name)}: "
            at = text.find(key)
            if at >= 0:
                starts.append(at + len(key) + isinstance(value, str))
    return starts
