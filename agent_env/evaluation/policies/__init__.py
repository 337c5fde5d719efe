"""Policies by name, as `--policy` takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_env.bundle import Bundle
from agent_env.errors import PolicyError
from agent_env.evaluation.history import Policy
from agent_env.evaluation.policies.endpoint import Endpoint
from agent_env.evaluation.policies.expert import Expert
from agent_env.evaluation.policies.local_model import LocalModel
from agent_env.evaluation.policies.randomly import Randomly
from agent_env.evaluation.policies.scripted import scripted
from agent_env.nearest import question

FORMS = "expert, random:SEED, scripted:MODULE:FUNCTION, openai:MODEL, transformers:PATH"


@dataclass(frozen=True, kw_only=True)
class Means:
    """What some policies need beside their name."""

    bundle: Callable[[], Bundle]
    """The bundle with its tasks' data, for the expert. May raise."""
    base_url: str | None = None
    key: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)


def load_policy(spec: str, means: Means) -> Policy:
    """The policy of that name, ready to play. Raises PolicyError, BundleError, NotInstalled."""
    kind, _, rest = spec.partition(":")
    made = _KINDS.get(kind)
    if made is None:
        raise PolicyError(f"no policy {spec!r}; {question(kind, _KINDS)}there are: {FORMS}")
    if means.sampling and kind not in ("openai", "transformers"):
        raise PolicyError(f"--sampling is for a model's policy, not for {kind}")
    return made(rest, means)


def _expert(rest: str, means: Means) -> Policy:
    if rest:
        raise PolicyError(f"the policy is called expert, not expert:{rest}")
    return Expert(means.bundle())


def _random(rest: str, _: Means) -> Policy:
    if not rest.isdecimal():
        raise PolicyError(f"random takes a seed, as in random:0, not {rest!r}")
    return Randomly(int(rest))


def _scripted(rest: str, _: Means) -> Policy:
    return scripted(rest)


def _openai(rest: str, means: Means) -> Policy:
    if not rest or means.base_url is None:
        raise PolicyError("openai:MODEL needs --base-url, such as http://127.0.0.1:8001/v1")
    return Endpoint(rest, means.base_url, key=means.key, sampling=means.sampling)


def _transformers(rest: str, means: Means) -> Policy:
    if not rest:
        raise PolicyError("transformers needs a folder or a hub's id: transformers:PATH")
    return LocalModel(rest, sampling=means.sampling)


_KINDS: dict[str, Callable[[str, Means], Policy]] = {
    "expert": _expert,
    "random": _random,
    "scripted": _scripted,
    "openai": _openai,
    "transformers": _transformers,
}
