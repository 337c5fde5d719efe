"""The cases through verl's own agent-loop worker; only what the model says is from the script."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl.workers.rollout.replica import TokenOutput

from agent_env import AgentEnv
from agent_env.training.verl import RolloutLost
from agent_env.training.verl import rows as dataset_rows
from tests.agent_env.training import verl_harness

from .cases import Outcome, Script, rows
from .speech import own_text

LOST = Outcome(reward=None, scores={}, own_text="", counts=False)
"""verl drops a rollout that raised: there is no row of it."""


class Model:
    """Stands for verl's client of its generating servers."""

    def __init__(self, script: Script, tokenizer: Any) -> None:
        self._script, self._tokenizer = script, tokenizer

    async def generate(self, *, prompt_ids: list[int], **_: Any) -> TokenOutput:
        """The script's next message; no token of it is made up."""
        text = self._script.reply(self._tokenizer.decode(prompt_ids))
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields={})


def play(url: str, script: Script, folder: Path, *, timeout: float) -> Sequence[Outcome]:
    """All cases at once."""
    tokenizer = verl_harness.byte_tokenizer()
    with AgentEnv(url) as env:
        given = [dataset_rows(env, row["split"])[row["index"]] for row in rows(script.cases)]
    waits: Any = {"patience": timeout, "reset_timeout": timeout, "step_timeout": timeout}
    model: Any = Model(script, tokenizer)
    worker = verl_harness.made_worker(folder / "run", url, model, sessions=len(given), **waits)
    return [_outcome(tokenizer, one) for one in asyncio.run(worker.play_all(given))]


def _outcome(tokenizer: Any, made: Any) -> Outcome:
    if isinstance(made, RolloutLost):
        return LOST
    if isinstance(made, BaseException):
        raise made
    ids, mask = made.response_ids[0].tolist(), made.response_mask[0].tolist()
    facts = made.extra_fields["reward_extra_info"]
    scores = {name: value for name, value in facts.items() if name.startswith("score/")}
    known = {name.removeprefix("score/"): v for name, v in scores.items() if not math.isnan(v)}
    text = own_text(tokenizer, ids, mask)
    return Outcome(reward=made.reward_score, scores=known, own_text=text, counts=any(mask))
