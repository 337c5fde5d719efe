"""Headers and rows made up for tests."""

from __future__ import annotations

from typing import Any

from agent_env.evaluation.results import Header, Row


def header(**fields: Any) -> Header:
    return Header.model_validate(
        {
            "env": "counter",
            "bundle_hash": "0" * 64,
            "split": "eval",
            "tasks": 2,
            "attempts": 2,
            "policy": "random:0",
            "seed": 0,
            "reward": None,
            "max_calls": 64,
            "tools": [],
            "versions": {"gpurun": "0", "python": "3"},
            **fields,
        }
    )


def row(*, index: int = 0, attempt: int = 0, reward: float | None = 1.0, **fields: Any) -> Row:
    return Row.model_validate(
        {
            "task": f"eval-{index}",
            "split": "eval",
            "index": index,
            "attempt": attempt,
            "seed": 7,
            "tries": 1,
            "status": "unscored" if reward is None else "scored",
            "reward": reward,
            "scores": {} if reward is None else {"near": reward},
            "code": None,
            "error": None,
            "cut": False,
            "turns": 1,
            "tool_calls": 0,
            "tool_failures": 0,
            "seconds": 0.5,
            "hashes": ["a" * 64],
            "messages": [{"role": "user", "content": "Count."}],
            **fields,
        }
    )
