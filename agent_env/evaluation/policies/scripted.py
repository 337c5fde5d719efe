"""A policy that somebody wrote: a function of the history."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_env.errors import PolicyError
from agent_env.evaluation.history import Call, History, Move, Policy


def scripted(ref: str) -> Policy:
    """The policy `module:function`.

    The function takes a History and returns a tool call, `("name", {arguments})`, or a str, which
    is its answer and ends the turn. Raises PolicyError when it can't be found.
    """
    module, _, name = ref.partition(":")
    if not all(map(str.isidentifier, [*module.split("."), name])):
        raise PolicyError(f"scripted takes module:function, not {ref!r}")
    # As `python -m` does: one's own file in this folder is found.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise PolicyError(f"scripted:{ref}: no module {error.name!r}") from error
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise PolicyError(f"scripted:{ref}: {module} can't be imported: {why}") from error
    if not callable(function):
        raise PolicyError(f"scripted:{ref}: {module} has no function {name!r}")
    return _policy(ref, function)


def _policy(ref: str, function: Callable[[History], Any]) -> Policy:
    def policy(history: History) -> Move:
        return _move(ref, function(history))

    return policy


def _move(ref: str, said: Any) -> Move:
    match said:
        case str():
            return Move(text=said)
        case (str() as name, dict() as arguments):
            return Move(calls=(Call(name=name, arguments=arguments),))
        case Move():
            return said
    raise PolicyError(f"scripted:{ref} returned {said!r}: neither a str nor (name, arguments)")
