"""The tiny model is one that TRL takes, and its examples weigh what the model itself says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast
from trl.chat_template_utils import is_chat_template_prefix_preserving, supports_tool_calling

from agent_env.training.models import load_model, save_model, settle_torch
from agent_env.training.randomness import own_randomness, seed_everything
from agent_env.training.tiny import build_model, build_tokenizer
from agent_env.training.warmstart import Example, to_example, warm_start

pytestmark = pytest.mark.trl

WORDS = ("low", "high")


def choose(plan: str) -> str:
    """Choose.

    Args:
        plan: which one
    """
    return plan


TOOLS = [choose]


def talk(plan: str, word: str) -> list[dict[str, Any]]:
    function = {"name": "choose", "arguments": {"plan": plan}}
    return [
        {"role": "user", "content": f"Wind {word}."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": function}],
        },
        {"role": "tool", "name": "choose", "content": "value 1.0"},
        {"role": "assistant", "content": "done"},
    ]


TALKS = [talk(plan, word) for plan in ("sell", "keep") for word in WORDS]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    # Two threads that spin for each other on a busy machine take minutes for what is seconds.
    settle_torch()


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(TALKS, TOOLS)


def example(tokenizer: Any) -> Example:
    return to_example(tokenizer, TOOLS, TALKS[0], decision_weight=10.0)


def test_its_template_is_one_that_trl_can_train_tools_with(tokenizer: Any) -> None:
    assert supports_tool_calling(tokenizer)
    assert is_chat_template_prefix_preserving(tokenizer)


def test_a_conversation_is_rendered_in_qwens_syntax(tokenizer: Any) -> None:
    assert tokenizer.apply_chat_template(TALKS[0], tools=TOOLS, tokenize=False) == (
        "<|im_start|>system\nchoose(plan)<|im_end|>\n"
        "<|im_start|>user\nWind low.<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "choose", "arguments": {"plan": "sell"}}\n'
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nvalue 1.0\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\ndone<|im_end|>\n"
    )


def test_its_tokenizer_does_not_depend_on_the_order_of_the_conversations(tokenizer: Any) -> None:
    assert build_tokenizer(TALKS[::-1], TOOLS).get_vocab() == tokenizer.get_vocab()


def test_only_the_assistants_words_are_learned_and_the_decision_weighs_most(
    tokenizer: Any,
) -> None:
    learned = [
        (tokenizer.decode([token]), weight)
        for token, weight in zip(*vars(example(tokenizer)).values(), strict=True)
        if weight
    ]
    assert "".join(text for text, _ in learned) == (
        '<tool_call>\n{"name": "choose", "arguments": {"plan": "sell"}}\n</tool_call><|im_end|>'
        "done<|im_end|>"
    )
    assert [text for text, weight in learned if weight > 1] == ["sell"]


def test_it_is_small_and_survives_saving(tokenizer: Any, tmp_path: Path) -> None:
    seed_everything(0)
    model = build_model(tokenizer)
    save_model(model, tokenizer, tmp_path / "model")
    save_model(model, tokenizer, tmp_path / "model")
    again, tokenizer_again = load_model(str(tmp_path / "model"))
    assert sum(weights.numel() for weights in again.parameters()) < 200_000
    assert tokenizer_again.response_template == tokenizer.response_template
    ids = torch.tensor([example(tokenizer).ids])
    assert torch.equal(again(ids).logits, model(ids).logits)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_warm_start_learns_what_it_is_shown(tokenizer: Any) -> None:
    seed_everything(0)
    losses = list(
        warm_start(
            build_model(tokenizer),
            [example(tokenizer)],
            pad=tokenizer.pad_token_id,
            steps=40,
            batch_rows=2,
            learning_rate=3e-3,
            rng=random.Random(0),
        )
    )
    assert losses[0] > 1
    assert losses[-1] < 0.2


def test_an_eval_uses_up_no_random_numbers_of_the_training() -> None:
    seed_everything(7)
    expected = torch.rand(2)
    seed_everything(7)
    with own_randomness(1):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(2), expected)
    with own_randomness(1):
        assert torch.equal(torch.rand(3), inside)
