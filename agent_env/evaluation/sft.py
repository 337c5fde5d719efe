"""Good attempts as data to fine-tune on: JSON lines with `messages` and `tools`, as TRL's
SFTTrainer takes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agent_env.evaluation.results import Header, Row
from agent_env.statistics import reaches


def examples(header: Header, rows: Iterable[Row], min_reward: float) -> list[dict[str, Any]]:
    """The conversations whose reward is at least `min_reward`; unscored ones never are."""
    return [
        {"messages": row.messages, "tools": header.tools}
        for row in rows
        if row.reward is not None and reaches(row.reward, min_reward)
    ]


def as_lines(found: Iterable[dict[str, Any]]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(example) + "\n" for example in found)
