"""Plausible arguments for a tool from its JSON Schema and from what was read so far."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

_COUNT = re.compile(r"\b(\d{1,3}) (?:numbers|values|items|entries|words)\b")
"""Some descriptions say how long a list is and the schema doesn't."""
_POSITIVE = re.compile(r"never below 0|at least 0|not negative", re.IGNORECASE)

_REACH = 200
_LONGEST_LIST = 4


class Guess:
    """Draws values with one generator; equal generators and words give equal values."""

    def __init__(self, rng: random.Random, words: Sequence[str]) -> None:
        self._rng = rng
        self._words = list(words) or ["word"]

    def value(self, schema: dict[str, Any]) -> Any:
        """A value that fits the schema as far as it says what fits."""
        return self._any(schema, "", schema.get("$defs", {}))

    def text(self) -> str:
        """A few of the words."""
        return " ".join(self._rng.choice(self._words) for _ in range(self._rng.randint(1, 4)))

    def _any(self, schema: dict[str, Any], name: str, known: dict[str, Any]) -> Any:
        about = str(schema.get("description", ""))
        if "$ref" in schema:
            return self._any(known[schema["$ref"].rpartition("/")[2]], name, known)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            return self._any({"description": about, **self._rng.choice(choices)}, name, known)
        return self._typed(schema, name, about, known)

    def _typed(self, schema: dict[str, Any], name: str, about: str, known: dict[str, Any]) -> Any:
        match schema.get("type"):
            case "object":
                return self._object(schema, known)
            case "array":
                inner = {"description": about, **schema.get("items", {})}
                return [self._any(inner, name, known) for _ in range(self._length(schema, about))]
            case "integer":
                return self._rng.randint(*self._range(schema, about))
            case "number":
                return round(self._rng.uniform(*self._range(schema, about)), 1)
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
        return self._string(name, about)

    def _object(self, schema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        """Every required property, and each other one half of the time."""
        required = set(schema.get("required", ()))
        return {
            name: self._any(inner, name, known)
            for name, inner in schema.get("properties", {}).items()
            if name in required or self._rng.random() < 0.5
        }

    def _length(self, schema: dict[str, Any], about: str) -> int:
        if said := _COUNT.search(about):
            return int(said[1])
        low = int(schema.get("minItems", 0))
        return self._rng.randint(low, max(low, int(schema.get("maxItems", low + _LONGEST_LIST))))

    def _range(self, schema: dict[str, Any], about: str) -> tuple[int, int]:
        low = schema.get("minimum", 0 if _POSITIVE.search(about) else -_REACH)
        return int(low), max(int(low), int(schema.get("maximum", _REACH)))

    def _string(self, name: str, about: str) -> str:
        """An id where one is asked for, else words, all from what was read."""
        ids = [word for word in self._words if re.fullmatch(r"[A-Za-z][\w-]*\d", word)]
        if ids and (name == "id" or name.endswith("_id") or re.search(r"\bid\b", about)):
            return self._rng.choice(ids)
        return self.text()
