"""The tiny model is one that TRL takes, and its examples weigh what the model itself says."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import PreTrainedTokenizerFast
from trl.chat_template_utils import is_chat_template_prefix_preserving, supports_tool_calling

from agent_env.training.config import ConfigError, LoraConfig, SftConfig
from agent_env.training.learner import rendering
from agent_env.training.models import (
    load_model,
    save_memory,
    save_model,
    settle_torch,
    with_adapters,
)
from agent_env.training.randomness import own_randomness, seed_everything
from agent_env.training.tiny import build_model, build_tokenizer
from agent_env.training.warmstart import Example, to_example, warm_start

pytestmark = pytest.mark.trl

CHAT_TEMPLATES = Path(trl.__file__).parent / "chat_templates"

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


def taught(tokenizer: Any, model: Any, **more: Any) -> list[float]:
    """The losses of three steps on all examples."""
    rows = [to_example(tokenizer, TOOLS, talk, decision_weight=2.0) for talk in TALKS]
    told = {"pad": tokenizer.pad_token_id, "steps": 3, "batch_rows": 4, "learning_rate": 1e-2}
    return list(warm_start(model, rows, **told, rng=random.Random(0), **more))


def fresh(tokenizer: Any) -> Any:
    seed_everything(0)
    return build_model(tokenizer)


def test_a_step_in_pieces_is_the_same_step(tokenizer: Any) -> None:
    whole = taught(tokenizer, fresh(tokenizer))
    assert taught(tokenizer, fresh(tokenizer), rows_at_once=1) == pytest.approx(whole, rel=1e-4)


def test_adapters_alone_are_trained_whatever_memory_is_saved(tokenizer: Any) -> None:
    kept, spared = (with_adapters(fresh(tokenizer), LoraConfig(rank=4)) for _ in range(2))
    save_memory(spared)
    losses = [taught(tokenizer, model) for model in (kept, spared)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][-1] < losses[0][0]
    base = {name: weights for name, weights in kept.named_parameters() if "lora_" not in name}
    assert not any(weights.requires_grad for weights in base.values())


@pytest.mark.parametrize(
    ("thinking", "first"),
    [(False, "<tool_call>\n"), (None, "<think>\n\n</think>\n\n<tool_call>\n")],
)
def test_a_model_that_can_think_is_taught_what_it_will_be_shown(
    tokenizer: Any, thinking: bool | None, first: str
) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = (CHAT_TEMPLATES / "qwen3.jinja").read_text()
    told = rendering(tokenizer, SftConfig(thinking=thinking))
    taught = to_example(tokenizer, TOOLS, TALKS[0], decision_weight=1.0, rendering=told)
    learned = tokenizer.decode([i for i, w in zip(taught.ids, taught.weights, strict=True) if w])
    call = '{"name": "choose", "arguments": {"plan": "sell"}}\n</tool_call><|im_end|>'
    assert learned.startswith(first + call)
    assert learned.endswith("done<|im_end|>")


def test_a_template_that_begins_turns_otherwise_than_it_shows_them_is_refused(
    tokenizer: Any,
) -> None:
    told = {
        "chat_template": (CHAT_TEMPLATES / "qwen3.jinja").read_text(),
        "enable_thinking": False,
    }
    with pytest.raises(ConfigError, match="begins a turn otherwise"):
        to_example(tokenizer, TOOLS, TALKS[0], decision_weight=1.0, rendering=told)


def test_an_eval_uses_up_no_random_numbers_of_the_training() -> None:
    seed_everything(7)
    expected = torch.rand(2)
    seed_everything(7)
    with own_randomness(1):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(2), expected)
    with own_randomness(1):
        assert torch.equal(torch.rand(3), inside)
