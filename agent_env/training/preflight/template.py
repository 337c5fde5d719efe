"""Can the model call tools, as far as its tokenizer tells? The trainer asks the same, later.

The tokenizer is small and loads in a second; the weights are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from agent_env.errors import AgentEnvError
from agent_env.training.config import ConfigError
from agent_env.training.preflight.versions import installed

FAMILIES: dict[str, tuple[str, ...]] = {
    "Qwen2.5": ("qwen2_5",),
    "Qwen3": ("qwen3", "qwen3_instruct_2507"),
    "Qwen3.5": ("qwen3_5_nothink", "qwen3_5_think"),
    "Llama 3.1 and 3.2": ("llama3_1", "llama3_2"),
    "GLM-4-MoE": ("glm4moe",),
    "gpt-oss": ("gptoss",),
    "Nemotron 3": ("nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra"),
    "Gemma 4": ("gemma4",),
}
"""Families whose instruct models call tools under TRL, and TRL's names of their templates."""

_FILES = ("tokenizer*", "vocab*", "*.model")
_UNREACHED = {"LocalEntryNotFoundError", "OfflineModeIsEnabled"}


def load_tokenizer(source: str, named: str) -> Any:
    """The tokenizer alone.

    Raises ConfigError when there is none, AgentEnvError when the hub couldn't be reached.
    """
    folder = Path(source)
    # Without its files, transformers makes up an empty tokenizer.
    if folder.is_dir() and not any(any(folder.glob(name)) for name in _FILES):
        raise ConfigError(
            [f"{named}: {folder} has no tokenizer; copy the tokenizer's files there, too"]
        )
    try:
        return import_module("transformers").AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        line = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        message = f"{named}: no tokenizer can be loaded from {source!r}: {line}"
        if _causes(error) & _UNREACHED:
            raise AgentEnvError(f"{message}; is there a network?") from None
        raise ConfigError([message]) from None


def template_faults(tokenizer: Any, named: str) -> Iterator[str]:
    """The first thing that keeps the model from calling tools; `tokenizer` may be changed."""
    # Asked of the module, as unsloth puts functions of its own in there.
    trl = import_module("trl.chat_template_utils")
    instead = f"take an instruct model of a family that does: {', '.join(FAMILIES)}"
    if tokenizer.chat_template is None:
        yield f"{named}: the tokenizer has no chat template, as of a base model; {instead}"
    elif not trl.supports_tool_calling(tokenizer):
        yield f"{named}: its chat template can't show tool calls and their results; {instead}"
    elif not _has_parser(trl, tokenizer):
        yield (
            f"{named}: nothing reads its tool calls: the tokenizer has no response_template, and"
            f" TRL {installed('trl')} doesn't know its chat template letter by letter; set"
            f" tokenizer.response_template and save it with the model, or {instead}"
        )
    elif not _keeps_prefixes(trl, tokenizer):
        yield (
            f"{named}: its chat template renders earlier messages differently once a tool's"
            " result follows, and TRL has no version of it for training; make it render each"
            f" message by itself, or {instead}"
        )


def _has_parser(trl: Any, tokenizer: Any) -> bool:
    names = ("response_template", "response_schema")
    if any(getattr(tokenizer, name, None) is not None for name in names):
        return True
    try:
        trl.add_response_schema(tokenizer)
    except ValueError:
        return False
    return True


def _keeps_prefixes(trl: Any, tokenizer: Any) -> bool:
    if trl.is_chat_template_prefix_preserving(tokenizer):
        return True
    try:
        return trl.get_training_chat_template(tokenizer) is not None
    except ValueError:
        return False


def _causes(error: BaseException | None) -> set[str]:
    names = set()
    while error is not None:
        names.add(type(error).__name__)
        error = error.__cause__ or error.__context__
    return names
