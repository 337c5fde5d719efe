"""Frames as a session sends them, and what it makes of the replies. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from agent_env.errors import (
    AtCapacity,
    EnvError,
    InvalidAction,
    JournalFull,
    NotReset,
    ProtocolError,
    SessionDiverged,
    SessionError,
    SessionLost,
    StepTimeout,
)
from agent_env.types import MAX_FRAME_BYTES, EpisodeState, Observation

M = TypeVar("M", bound=BaseModel)

_BY_REASON: dict[str, type[SessionError]] = {
    "NOT_RESET": NotReset,
    "STEP_TIMEOUT": StepTimeout,
    "JOURNAL_FULL": JournalFull,
    "ENV_ERROR": EnvError,
    "SEQ_GAP": ProtocolError,
    "SEQ_OLD": ProtocolError,
    "SESSION_LOST": SessionLost,
    "SESSION_DIVERGED": SessionDiverged,
    "BUNDLE_CHANGED": SessionLost,
}
_BY_CODE: dict[str, type[SessionError]] = {
    "VALIDATION_ERROR": InvalidAction,
    "EXECUTION_ERROR": EnvError,
    "FACTORY_ERROR": EnvError,
    "SESSION_ERROR": SessionLost,
}


class Refusal(Exception):
    """An error frame: what it means to the caller, and the server's hints beside that."""

    def __init__(self, error: SessionError, data: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.error = error
        self.code = data.get("code")
        self.reason = data.get("reason")
        hint = data.get("retry_after_s")
        self.retry_after_s = float(hint) if isinstance(hint, int | float) else 0.0


@dataclass(frozen=True)
class Sent:
    """A reset or a step as it goes out, and again after each break."""

    text: str
    reply_s: float
    """How long its reply may take."""
    seq: int
    """0 for a reset, n for the nth step of the episode."""
    episode: str
    opens: bool = False
    """A reset may open its session; a step is only for the one that has the episode."""


def frame(kind: str, data: dict[str, Any] | None = None) -> str:
    """A frame's text; some kinds have no data, and stock servers take none."""
    return json.dumps({"type": kind} | ({} if data is None else {"data": data}))


def check_size(text: str) -> None:
    """Raises InvalidAction for a frame that a server of ours would end the connection for."""
    if len(text) > MAX_FRAME_BYTES:  # the JSON is ASCII: a character is a byte
        message = f"a call of {len(text):,} bytes: a server takes {MAX_FRAME_BYTES:,} at most"
        raise InvalidAction(f"{message}; nothing was sent")


def observation(text: str) -> Observation:
    """The reply to a reset or a step. Raises Refusal, and ProtocolError for what is no reply."""
    return _observation(_data(text, "observation"))


def state(text: str) -> EpisodeState:
    """The reply to `state`; raises the same."""
    return _validated(EpisodeState, _data(text, "state"))


def session_facts(seen: Observation) -> dict[str, Any] | None:
    """Which session and step the reply is of; None from a server without our extensions."""
    facts = seen.metadata.get("session")
    return facts if isinstance(facts, dict) else None


def check_own(seen: Observation, sent: Sent, session: str | None) -> None:
    """Raises ProtocolError for a reply to another frame than the one that was sent."""
    facts = session_facts(seen) or {}
    found = (facts.get("id"), facts.get("seq"))
    if found != (session, sent.seq) or isinstance(facts.get("seq"), bool):
        raise ProtocolError(
            f"a reply to step {found[1]} of session {found[0]},"
            f" where step {sent.seq} of {session} was asked for"
        )
    episode = seen.metadata.get("episode_id", sent.episode)
    if episode != sent.episode:
        raise ProtocolError(f"a reply from episode {episode} instead of {sent.episode}")


def _data(text: str, wanted: str) -> dict[str, Any]:
    try:
        message = json.loads(text)
        kind, data = message["type"], message["data"]
        if kind == "error":
            raise _refusal(data)
        if kind != wanted or not isinstance(data, dict):
            raise ValueError(f"a frame of type {kind!r} instead of {wanted!r}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"unreadable reply: {error}") from error
    return data


def _observation(reply: dict[str, Any]) -> Observation:
    fields, beside = reply.get("observation") or {}, reply.get("metadata") or {}
    if not isinstance(fields, dict) or not isinstance(beside, dict):
        raise ProtocolError("unreadable reply: observation and metadata must be objects")
    outer: dict[str, Any] = {key: reply[key] for key in ("done", "reward") if key in reply}
    inner = fields.get("metadata") or {}
    metadata = {**inner, **beside} if isinstance(inner, dict) else inner
    return _validated(Observation, {**fields, **outer, "metadata": metadata})


def _validated(model: type[M], data: dict[str, Any]) -> M:
    try:
        return model.model_validate(data)
    except ValueError as error:
        raise ProtocolError(f"unreadable reply: {error}") from error


def _refusal(data: dict[str, Any]) -> Refusal:
    message, code, reason = str(data["message"]), data["code"], data.get("reason")
    if code == "CAPACITY_REACHED":
        more = "start the server with more (--max-sessions, in Python max_sessions=)"
        return Refusal(AtCapacity(f"{message}; {more}, or use smaller batches"), data)
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code)  # type: ignore[arg-type]
    if kind is None or kind is ProtocolError:
        return Refusal(ProtocolError(f"{message} (code: {code}, reason: {reason})"), data)
    return Refusal(kind(message), data)
