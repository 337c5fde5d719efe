"""The cases through SkyRL's own generator; only what the model says is from the script."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.agent_env.training import skyrl_support as skyrl

from .cases import Outcome, Script, rows
from .speech import own_text

WAITS = ("patience_s", "reset_timeout_s", "step_timeout_s")


class Model:
    """Stands for SkyRL's inference client."""

    model_name = "scripted"
    weight_version = 0

    def __init__(self, script: Script) -> None:
        self._script = script

    async def generate(self, given: Any, **_: Any) -> dict[str, Any]:
        """The script's next message."""
        text = self._script.reply(skyrl.TOKENIZER.decode(given["prompt_token_ids"][0]))
        ids = skyrl.TOKENIZER.encode(text, add_special_tokens=False)
        return {
            "responses": [text],
            "response_ids": [ids],
            "stop_reasons": ["stop"],
            "response_logprobs": [[-0.5] * len(ids)],
        }

    async def finish_session(self, _session: str) -> None:
        """Nothing is kept of it here."""


def play(url: str, script: Script, folder: Path, *, timeout: float) -> Sequence[Outcome]:
    """All cases at once, each a group of its own."""
    del folder
    known = {split: skyrl.rows_of(url, split) for split in ("one", "two")}
    given = [known[row["split"]][row["index"]] for row in rows(script.cases)]
    options = [f"generator.agent_env.{name}={timeout}" for name in WAITS]
    made = skyrl.generator(url, lambda _: (), "generator.max_turns=8", *options)
    made.inference_engine_client = Model(script)
    output = asyncio.run(made.generate(_batch(given), disable_tqdm=True))
    return [_outcome(output, number) for number in range(len(given))]


def _batch(given: Sequence[dict[str, Any]]) -> dict[str, Any]:
    items = [
        {
            "prompt": row["prompt"],
            "env_class": row["env_class"],
            "env_extras": {name: row[name] for name in ("data_source", "task")},
            "uid": str(number),
        }
        for number, row in enumerate(given)
    ]
    # Found late: the support module makes SkyRL importable on this Python.
    prepare = import_module("skyrl.train.generators.utils").prepare_generator_input
    made: dict[str, Any]
    made, _ = prepare(items, 1, None, "agent_env", "train", 1)
    return made


def _outcome(output: dict[str, Any], number: int) -> Outcome:
    facts, mask = output["env_metrics"][number], output["loss_masks"][number]
    scores = {name: value for name, value in facts.items() if name.startswith("score/")}
    return Outcome(
        reward=None if facts["unscored"] else sum(output["rewards"][number]),
        scores={name.removeprefix("score/"): value for name, value in scores.items()},
        own_text=own_text(skyrl.TOKENIZER, output["response_ids"][number], mask),
        counts=any(mask),
    )
