"""A model in this process, through transformers. Loaded only where it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from agent_env.errors import NotInstalled, PolicyError
from agent_env.evaluation.history import Call, History, Move, tool_schema

NEW_TOKENS = 512


class LocalModel:
    """Generates one move at a time, greedily unless `sampling` says otherwise."""

    def __init__(self, path: str, *, sampling: Mapping[str, Any]) -> None:
        """Load it. `sampling` is passed to `generate`, as it is.

        Raises NotInstalled without transformers, PolicyError when there is no such model, or one
        whose tool calls nobody can read.
        """
        self._sampling = {"max_new_tokens": NEW_TOKENS, "do_sample": False, **sampling}
        self._lock = threading.Lock()
        try:
            self._torch = import_module("torch")
            models = import_module("agent_env.training.models")
            self._templates = import_module("trl.chat_template_utils")
        except ModuleNotFoundError as error:
            message = f"transformers:{path} needs {error.name}"
            raise NotInstalled(message, extra="train") from None
        try:
            self._model, tokenizer = models.load_model(path)
        except (OSError, ValueError) as error:
            raise PolicyError(f"no model at {path!r}: {error}") from error
        self._tokenizer = self._readable(tokenizer)

    def __call__(self, history: History) -> Move:
        with self._lock:
            # A move depends on nothing but what came before it in its own episode.
            self._torch.manual_seed(int(history.digest(history.seed)[:15], 16))
            return self._generate(history)

    def _generate(self, history: History) -> Move:
        tools = [tool_schema(spec) for spec in history.tools]
        prompt = self._tokenizer.apply_chat_template(
            history.messages,
            tools=tools,
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        ).to(self._model.device)
        made = self._model.generate(**prompt, **self._sampling)
        before = prompt["input_ids"][0].tolist()
        said = made[0].tolist()[len(before) :]
        return _move(self._templates.parse_response(self._tokenizer, said, before, tools))

    def _readable(self, tokenizer: Any) -> Any:
        """With a description of how this model writes tool calls."""
        if getattr(tokenizer, "response_template", None) is not None:
            return tokenizer
        try:
            return self._templates.add_response_schema(tokenizer)
        except ValueError as error:
            raise PolicyError(f"nobody knows how this model writes tool calls: {error}") from error


def _move(parsed: dict[str, Any]) -> Move:
    calls = [_call(call["function"]) for call in parsed.get("tool_calls") or ()]
    return Move(text=parsed.get("content") or "", calls=tuple(calls))


def _call(function: dict[str, Any]) -> Call:
    name, arguments = str(function["name"]), function.get("arguments")
    if not isinstance(arguments, dict):
        return Call(name=name, arguments={}, fault=f"error: {name}: arguments: not an object")
    return Call(name=name, arguments=arguments)
