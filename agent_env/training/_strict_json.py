"""JSON as a server takes it: finite numbers, no halves of characters."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def decoded(text: str) -> Any:
    """The value that is the whole text. Raises ValueError, RecursionError."""
    value = _DECODER.decode(text)
    _check_whole(value)
    return value


def first_decoded(text: str) -> tuple[Any, int]:
    """The value at the text's start, after white space, and where it ends.

    Raises ValueError, RecursionError.
    """
    value, end = _DECODER.raw_decode(text, len(text) - len(text.lstrip()))
    _check_whole(value)
    return value, end


def whole(text: str) -> str:
    """The text without halves of characters, which no tokenizer takes."""
    return text.encode(errors="replace").decode()


def _check_whole(value: Any) -> None:
    """Raises ValueError where JSON's escapes spell half a character."""
    if whole(spelled := json.dumps(value, ensure_ascii=False)) != spelled:
        raise ValueError("an escape spells half of a surrogate pair")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large a number")
    return number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


# What JSON can't carry back would be refused as a broken frame, and cost the rollout its score.
_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
