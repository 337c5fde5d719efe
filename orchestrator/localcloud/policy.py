"""Whether IAM policy documents allow an action: the few operators that our roles use.

An unknown condition operator or a missing context key never allows (IAM User Guide, "Policy
evaluation logic" and "Condition operators").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any


def documents_of(role: Any) -> list[dict[str, Any]]:
    """A moto role's inline and attached policy documents."""
    texts = [*role.policies.values(), *(p.document for p in role.managed_policies.values())]
    return [json.loads(text) if isinstance(text, str) else text for text in texts]


def allows(
    documents: Iterable[Mapping[str, Any]],
    action: str,
    resource: str,
    context: Mapping[str, str],
) -> bool:
    """Explicit deny first, then any allow."""
    statements = [s for document in documents for s in _many(document.get("Statement"))]
    matching = [s for s in statements if _matches(s, action, resource, context)]
    if any(s.get("Effect") == "Deny" for s in matching):
        return False
    return any(s.get("Effect") == "Allow" for s in matching)


def _matches(
    statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]
) -> bool:
    named, on = _many(statement.get("Action")), _many(statement.get("Resource"))
    return (
        any(_like(action.lower(), pattern.lower()) for pattern in named)
        and any(_like(resource, pattern) for pattern in on)
        and _conditions_hold(statement.get("Condition", {}), context)
    )


def _conditions_hold(conditions: Mapping[str, Any], context: Mapping[str, str]) -> bool:
    return all(
        _condition_holds(operator, _many(wanted), context.get(key))
        for operator, keys in conditions.items()
        for key, wanted in keys.items()
    )


def _condition_holds(operator: str, wanted: list[Any], actual: str | None) -> bool:
    if actual is None:
        return operator == "Null" and wanted == ["true"]
    if operator == "StringEquals":
        return actual in wanted
    if operator == "StringLike":
        return any(_like(actual, pattern) for pattern in wanted)
    return operator == "Null" and wanted == ["false"]


@lru_cache(maxsize=4096)
def _like(text: str, pattern: str) -> bool:
    """IAM's * and ?; brackets mean themselves."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _many(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
