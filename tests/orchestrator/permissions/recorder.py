"""Writes down what is asked of AWS, with what IAM would be asked for it at that moment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from orchestrator.localcloud import policy

from .calls import Ask, At
from .table import TABLE

# Other services' names are the same to boto3 and in its events.
_SERVICES = {"secrets-manager": "secretsmanager"}


@dataclass
class Recorder:
    """Hangs on a boto3 session before its clients are made."""

    asks: list[tuple[str, Ask]] = field(default_factory=list)
    """The operation, and one question for it."""
    unknown: set[tuple[str, str]] = field(default_factory=set)
    paused: bool = False

    def listen(self, boto: Any) -> None:
        boto.events.register("provide-client-params.*.*", self._heard)

    def _heard(
        self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: object
    ) -> None:
        if self.paused:
            return
        service = model.service_model.service_id.hyphenize()
        key = _SERVICES.get(service, service), model.name
        rule = TABLE.get(key)
        if rule is None:
            self.unknown.add(key)
            return
        at = At(context["client_region"])
        self.asks += [(model.name, ask) for ask in rule(params, at)]

    def refused(self, documents: list[dict[str, Any]]) -> list[tuple[str, Ask]]:
        """What these policies wouldn't allow, each once."""
        found = {
            (name, ask.action, ask.resource): (name, ask)
            for name, ask in self.asks
            if not policy.allows(documents, ask.action, ask.resource, ask.context)
        }
        return list(found.values())

    @property
    def actions(self) -> set[str]:
        return {ask.action for _, ask in self.asks}


def actions_of(documents: list[dict[str, Any]]) -> set[str]:
    """Every action that the documents allow, by name: none may be a pattern."""
    allowed = {
        action
        for document in documents
        for statement in document["Statement"]
        if statement["Effect"] == "Allow"
        for action in _many(statement["Action"])
    }
    assert not [action for action in allowed if re.search(r"[*?]", action)]
    return allowed


def _many(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]
