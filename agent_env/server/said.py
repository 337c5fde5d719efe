"""What an episode said, as text: made once for the reply, the hash and the journal.

The parts are put together by hand, since a step pays for nothing as much as for JSON.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from agent_env.server.protocol import dump


@dataclass(slots=True)
class Said:
    """JSON text without the outer braces, keys in the order in which they are sent."""

    fields: str
    metadata: str
    reward: str
    done: str

    def digest(self) -> str:
        """SHA-256 over all of it: the same words give the same."""
        said = f"{{{self.fields}{self.metadata},{self.reward},{self.done}}}"
        return hashlib.sha256(said.encode()).hexdigest()

    def frame(self, more: str) -> str:
        """The `observation` frame; `more` is metadata of the session, as JSON without braces."""
        metadata = f'"metadata":{{{self.metadata}{more}}}'
        observation = f'"observation":{{{self.fields}{metadata}}}'
        data = f'{observation},"reward":{self.reward},"done":{self.done},{metadata}'
        return f'{{"type":"observation","data":{{{data}}}}}'


def say(
    fields: dict[str, Any], metadata: dict[str, Any], reward: float | None, done: bool
) -> Said:
    """Raises what isn't JSON data does. Each part ends with a comma, if it isn't empty."""
    return Said(
        f"{dump(fields)[1:-1]}," if fields else "",
        f"{dump(metadata)[1:-1]}," if metadata else "",
        "null" if reward is None else json.dumps(reward, allow_nan=False),
        "true" if done else "false",
    )


def session_metadata(
    episode_id: str | None, session_id: str | None, epoch: int, seq: int, bundle_hash: str | None
) -> str:
    """`episode_id` and `session`, as JSON without braces."""
    episode = dump_text(episode_id)
    numbers = f'"epoch":{epoch},"seq":{seq}'
    names = f'"id":{dump_text(session_id)},{numbers},"bundle_hash":{dump_text(bundle_hash)}'
    return f'"episode_id":{episode},"session":{{{names}}}'


def dump_text(text: str | None) -> str:
    """A string or null as JSON."""
    return "null" if text is None else json.dumps(text)
