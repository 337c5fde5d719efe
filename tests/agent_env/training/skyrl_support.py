"""SkyRL's own generator with a model that says what it is told to, and a tokenizer of bytes."""

from __future__ import annotations

import asyncio
import json
import sys
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.request import urlopen

import typing_extensions

if sys.version_info < (3, 12):
    # SkyRL is made for 3.12, where the two are the same.
    typing.TypedDict = typing_extensions.TypedDict

import numpy as np
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_grpo_outcome_advantage
from skyrl.train.generators.utils import prepare_generator_input
from skyrl.train.utils.trainer_utils import validate_generator_output
from skyrl_gym.envs.registration import deregister, registry
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.training.skyrl import AgentEnvGenerator, skyrl_rows
from agent_env.training.skyrl.experiment import AgentEnvConfig, register
from agent_env.training.skyrl.settings import ENV_CLASS, EnvSettings

END = "<|im_end|>"
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}A call is <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% elif not (tools and loop.first and m.role == 'system') %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def tokenizer(template: str = TEMPLATE) -> PreTrainedTokenizerFast:
    """One token for each byte, and the marks of a chat."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(models.BPE({c: n for n, c in enumerate(alphabet)}, []))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    marks = ["<|im_start|>", END, "<|endoftext|>"]
    bytes_only.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    made = PreTrainedTokenizerFast(
        tokenizer_object=bytes_only, eos_token=END, pad_token="<|endoftext|>"
    )
    made.chat_template = template
    return made


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


TOKENIZER = tokenizer()
Turn = str | Callable[[], Awaitable[str]]
"""What the model says; a function may do something first."""
Script = Callable[[int], Sequence[Turn]]
"""The turns of the rollout of that number in its group."""


COMMIT = call("commit")


class Scripted:
    """SkyRL's inference client, as far as its generator uses one."""

    model_name = "scripted"
    weight_version = 0

    def __init__(self, script: Script) -> None:
        self._script = script
        self._turns: dict[str, list[Turn]] = {}
        self.generated = 0
        self.seen: list[str] = []
        self._finished = 0
        self._changed = asyncio.Condition()

    async def generate(self, given: Any, model: str | None = None) -> dict[str, Any]:
        assert model is None
        (session,) = given["session_ids"]
        self.seen.append(TOKENIZER.decode(given["prompt_token_ids"][0]))
        if session not in self._turns:
            self._turns[session] = list(self._script(int(session.rpartition("_")[2])))
        turn = self._turns[session].pop(0)
        text = turn if isinstance(turn, str) else await turn()
        self.generated += 1
        ids = TOKENIZER.encode(text, add_special_tokens=False)
        ids.append(TOKENIZER.eos_token_id)
        return {
            "responses": [text],
            "response_ids": [ids],
            "stop_reasons": ["stop"],
            "response_logprobs": [[-0.5] * len(ids)],
        }

    async def finish_session(self, session_id: str) -> None:
        async with self._changed:
            self._finished += session_id in self._turns
            self._changed.notify_all()

    async def finished(self, number: int) -> None:
        """Wait until so many rollouts are over."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._finished >= number)


def rows_of(url: str, *splits: str) -> list[dict[str, Any]]:
    with AgentEnv(url) as env:
        return skyrl_rows(env, *splits, tokenizer=TOKENIZER)


def generator(url: str, script: Script, *overrides: str, room: int = 4000) -> AgentEnvGenerator:
    """SkyRL's real one, as our entry point makes it."""
    cfg = AgentEnvConfig.from_cli_overrides(
        [
            "generator.max_turns=4",
            f"generator.max_input_length={room}",
            "environment.skyrl_gym.max_env_workers=4",
            f"generator.agent_env.url={url}",
            "generator.agent_env.max_unscored=1.0",
            *overrides,
        ]
    )
    settings = registered(cfg)
    return AgentEnvGenerator(
        generator_cfg=cfg.generator,
        skyrl_gym_cfg=cfg.environment.skyrl_gym,
        inference_engine_client=Scripted(script),
        tokenizer=TOKENIZER,
        settings=settings,
    )


def registered(cfg: Any) -> EnvSettings:
    """The settings of that config, which alone is known in this process from now on."""
    settings: EnvSettings = cfg.generator.agent_env
    if ENV_CLASS in registry:
        deregister(ENV_CLASS)
    register(settings)
    return settings


def batch(row: dict[str, Any], rollouts: int, phase: str = "train") -> dict[str, Any]:
    """One group, as SkyRL's trainer prepares it."""
    made: dict[str, Any]
    made, _ = prepare_generator_input(
        [
            {
                "prompt": row["prompt"],
                "env_class": row["env_class"],
                "env_extras": _extras(row),
                "uid": "0",
            }
        ],
        rollouts,
        None,
        "agent_env",
        phase,
        1,
    )
    return made


def generated(made: AgentEnvGenerator, given: dict[str, Any]) -> dict[str, Any]:
    """The batch's rollouts, checked as SkyRL's trainer checks them."""
    output: dict[str, Any] = asyncio.run(made.generate(given, disable_tqdm=True))
    validate_generator_output(len(given["prompts"]), output)
    return output


def totals(output: dict[str, Any]) -> list[float]:
    return [sum(rewards) for rewards in output["rewards"]]


def advantages(output: dict[str, Any]) -> list[float]:
    """SkyRL's own, without scaling; of a group, by rollout."""
    widest = max(map(len, output["rewards"]))
    rewards = torch.tensor([[0.0] * (widest - len(row)) + row for row in output["rewards"]])
    found, _ = compute_grpo_outcome_advantage(
        rewards, torch.ones_like(rewards), np.array(["0"] * len(rewards)), grpo_norm_by_std=False
    )
    return [row[-1].item() for row in found]


def _extras(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("data_source", "task")}


def adds(number: int) -> list[Turn]:
    """Rollout k adds 2k + 2 of the 10 that are asked for."""
    return [call("add", n=2 * number + 2), COMMIT]


def sessions(server: LocalServer) -> int:
    with urlopen(f"{server.url}/capacity", timeout=5) as reply:
        return int(json.load(reply)["active_sessions"])


def free(server: LocalServer) -> bool:
    return sessions(server) == 0
