"""verl's own worker on a CPU: its real token builder, parser and padding, and a scripted model.

Imported only where verl is. The tokenizer knows single bytes, so that every text has one reading.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from agent_env.client import AgentEnv
from agent_env.training.verl import (
    LoopSettings,
    VerlRun,
    overrides,
    rows,
    write_dataset,
    write_loop_file,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from hydra import compose, initialize_config_module
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.workers.rollout.replica import TokenOutput

END = "<|im_end|>"
CONTROL = ("<|endoftext|>", "<|im_start|>", END)

# Qwen3's shape in short; a tool's reply is a user's turn, as in the real one.
TEMPLATE = """\
{%- if tools -%}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else -%}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] -%}
<tool_call>{{ call.function | tojson }}</tool_call>
{%- endfor -%}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""

Hook = Callable[[], Awaitable[None]]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each byte, and three for the template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(alphabet)}, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=END, pad_token=CONTROL[0], chat_template=TEMPLATE
    )


def write_model(folder: Path) -> Path:
    """What is read of a model before one is loaded: tokenizer, config, that there are weights."""
    byte_tokenizer().save_pretrained(folder)
    Qwen3Config(num_hidden_layers=1, architectures=["Qwen3ForCausalLM"]).save_pretrained(folder)
    empty = b"{}"
    (folder / "model.safetensors").write_bytes(len(empty).to_bytes(8, "little") + empty)
    return folder


def call(name: str, **arguments: Any) -> str:
    """A tool call as Qwen3 writes it."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


class Script:
    """A model server that says what it was told to, in the order of a rollout's turns.

    `before[k]` is awaited before any rollout's turn k. Stands for verl's LLMServerClient.
    """

    def __init__(self, *turns: str, before: dict[int, Hook] | None = None) -> None:
        self.turns = turns
        self.before = before or {}
        self.asked: dict[str, list[tuple[list[int], list[int]]]] = {}
        self.sampling: list[dict[str, Any]] = []
        self.tokenizer = byte_tokenizer()

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        told = self.asked.setdefault(request_id, [])
        turn = len(told)
        if turn in self.before:
            await self.before[turn]()
        text = self.turns[min(turn, len(self.turns) - 1)]
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        ids = [*ids, self.tokenizer.eos_token_id] if text else []
        ids = ids[: sampling_params["max_tokens"]]
        told.append((prompt_ids, ids))
        self.sampling.append(sampling_params)
        version = 7 + turn
        return TokenOutput(
            token_ids=ids,
            log_probs=[-0.5] * len(ids),
            extra_fields={"min_global_steps": version, "max_global_steps": version},
        )


class InTurn:
    """The rollouts one after another get one of the scripts each."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self._given: dict[str, Script] = {}

    async def generate(self, request_id: str, **asked: Any) -> TokenOutput:
        if request_id not in self._given:
            self._given[request_id] = self._scripts[len(self._given) % len(self._scripts)]
        return await self._given[request_id].generate(request_id, **asked)


class Worker(AgentLoopWorker):  # type: ignore[misc]
    """verl's, which also keeps the outputs before they are padded."""

    def __init__(self, config: Any, script: Script) -> None:
        super().__init__(config, script)
        self.outputs: list[Any] = []

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> Any:
        self.outputs.append(output)
        return await super()._agent_loop_postprocess(output, validate, **kwargs)

    async def play(self, row: dict[str, Any]) -> Any:
        """A rollout of a dataset row, as the V1 worker runs it; padded."""
        return await self._run_agent_loop(
            {"temperature": 1.0},
            {"step": 7, "sample_index": 0, "rollout_n": 0, "validate": False},
            raw_prompt=[dict(message) for message in row["prompt"]],
            global_steps=7,
            **{name: value for name, value in row.items() if name != "prompt"},
        )

    async def play_all(self, given: Sequence[dict[str, Any]]) -> list[Any]:
        """Rollouts at once; what failed is its exception, as in verl's own gather."""
        return await asyncio.gather(*map(self.play, given), return_exceptions=True)


def composed(run: VerlRun, *more: str) -> Any:
    """verl's whole config, as its own entry point makes it of our command line."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[*overrides(run), *more])


def verl_run(folder: Path, **changes: Any) -> VerlRun:
    """A run whose files lie in that folder."""
    settings: dict[str, Any] = {
        "model": str(folder / "model"),
        "train_file": folder / "train.parquet",
        "val_file": folder / "val.parquet",
        "loop_file": folder / "loop.yaml",
        "out": folder / "out",
        "steps": 2,
        "prompts_per_step": 2,
        "rollouts_per_prompt": 4,
        "prompt_tokens": 4096,
        "response_tokens": 4096,
        "replies": None,
        "learning_rate": 1e-5,
        "workers": 1,
    }
    return VerlRun(**settings | changes)


def made_worker(
    folder: Path, url: str, script: Script, run: dict[str, Any] | None = None, **settings: Any
) -> Worker:
    """A worker for the server at that address. `run` and `settings` differ from the defaults."""
    wanted = verl_run(folder, **(run or {}))
    write_model(Path(wanted.model))
    told: dict[str, Any] = {"sessions": 4, "scores": ("near",), "rollout_s": 20.0}
    write_loop_file(wanted.loop_file, LoopSettings(url=url, **told | settings))
    return Worker(composed(wanted), script)


def written(folder: Path, env: AgentEnv, *splits: str) -> list[dict[str, Any]]:
    """The rows of the splits, which are also written where `verl_run` has them read."""
    given = rows(env, *splits)
    write_dataset(folder / "train.parquet", given)
    write_dataset(folder / "val.parquet", given)
    return given
