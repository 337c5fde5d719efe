"""Arguments made up from a tool's schema, and from words that the model has seen."""

from __future__ import annotations

import random
from typing import Any

OPTIONAL_GIVEN = 0.5
"""How often an argument with a default is given all the same."""


def made_up(schema: dict[str, Any], seen: str, rng: random.Random) -> dict[str, Any]:
    """Arguments that fit the tool's schema, most of the time."""
    required, definitions = schema.get("required", []), schema.get("$defs", {})
    return {
        name: _value(part, definitions, seen, rng)
        for name, part in schema.get("properties", {}).items()
        if name in required or rng.random() < OPTIONAL_GIVEN
    }


def _value(
    schema: dict[str, Any], definitions: dict[str, Any], seen: str, rng: random.Random
) -> Any:
    if "$ref" in schema:
        schema = definitions.get(schema["$ref"].rpartition("/")[2], {})
    if "enum" in schema or "const" in schema:
        return rng.choice(schema.get("enum", [schema.get("const")]))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return _value(rng.choice(schema[several]), definitions, seen, rng)
    if schema.get("type") == "array":
        count = rng.randint(schema.get("minItems", 0), schema.get("maxItems", 4))
        return [_value(schema.get("items", {}), definitions, seen, rng) for _ in range(count)]
    if schema.get("type") == "object":
        return made_up({**schema, "$defs": definitions}, seen, rng)
    return _plain(schema, seen, rng)


def _plain(schema: dict[str, Any], seen: str, rng: random.Random) -> Any:
    low, high = schema.get("minimum", -2), schema.get("maximum", 30)
    match schema.get("type"):
        case "integer":
            return rng.randint(int(low), int(max(low, high)))
        case "number":
            return round(rng.uniform(low, max(low, high)), 2)
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case _:
            words = seen.split() or ["word"]
            return rng.choice(words).strip(".,:;?!\"'()[]")
