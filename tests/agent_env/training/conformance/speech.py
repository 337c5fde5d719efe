"""A tokenizer that every trainer here can load, made on the spot from what the cases say."""

from __future__ import annotations

from typing import Any

from agent_env.training import tiny

from .cases import CASES, END

SYSTEM = {"role": "system", "content": "Add up to ten."}


def tokenizer() -> Any:
    """Byte-level, so that it reads any text; with Qwen3's tool syntax and a template of ours."""
    talks = [
        [
            {"role": "user", "content": f"Case {number}: add up to ten."},
            *({"role": "assistant", "content": reply} for reply in case.replies),
        ]
        for number, case in enumerate(CASES)
    ]
    return tiny.build_tokenizer(talks, [])


def own_text(tokenizer: Any, ids: list[int], mask: list[int]) -> str:
    """The text under the mask; what stands behind a message's end belongs to nobody."""
    kept = [one for one, mine in zip(ids, mask, strict=True) if mine]
    text: str = tokenizer.decode(kept)
    return text.removesuffix("\n") if text.endswith(END + "\n") else text
