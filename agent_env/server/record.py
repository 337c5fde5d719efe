"""What stands in a journal: its lines, made and read. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from agent_env.server.episode import Outcome
from agent_env.server.protocol import dump, load
from agent_env.server.said import Said

VERSION = 1


@dataclass(frozen=True, slots=True)
class Played:
    """A step that was answered."""

    n: int
    action: dict[str, Any]
    digest: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The task's own state after step `n`, and what the step was answered."""

    n: int
    turn: int
    state: Any
    reply: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Begun:
    """A reset that a server began."""

    asked: dict[str, Any]
    server: str


@dataclass(slots=True)
class Recorded:
    """A journal that was read; without its first line no episode was ever answered."""

    episode: str | None = None
    bundle: str = ""
    reward: str | None = None
    split: str = ""
    index: int = 0
    seed: int = 0
    asked: dict[str, Any] = field(default_factory=dict)
    digest: str = ""
    steps: list[Played] = field(default_factory=list)
    """Those after the snapshot, if there is one."""
    snapshot: Snapshot | None = None
    epoch: int = 0
    tries: list[str] = field(default_factory=list)
    """By which servers the step after the last one was begun."""
    tried: str = ""
    """That step's tool."""
    resets: list[Begun] = field(default_factory=list)
    """Those that were begun after all this and never answered: with them the episode is over."""
    lost: str | None = None

    @property
    def seq(self) -> int:
        """The number of the last step that was answered."""
        if self.steps:
            return self.steps[-1].n
        return self.snapshot.n if self.snapshot else 0


@dataclass(frozen=True, slots=True)
class First:
    """What an episode is made from, as the first line of its journal says it."""

    session: str
    episode: str | None
    bundle: str
    reward: str | None
    split: str
    index: int
    seed: int
    asked: dict[str, Any]


def reset_line(first: First, said: Said) -> bytes:
    """The first line of a journal, once there is an episode."""
    return line({"v": VERSION, **asdict(first), "h": said.digest()})


def reset_try_line(asked: dict[str, Any], server: str) -> bytes:
    """A reset that is about to be begun."""
    return line({"try": 0, "by": server, "asked": asked})


def try_line(n: int, server: str, tool: str) -> bytes:
    """A step that is about to be begun."""
    return line({"try": n, "by": server, "tool": tool})


def snapshot_line(n: int, turn: int, state: Any, outcome: Outcome) -> bytes:
    """The task's own state after step `n`. Raises what a state does that isn't JSON data."""
    return line({"snap": n, "turn": turn, "state": state, "reply": asdict(outcome)})


def step_line(n: int, action: dict[str, Any], said: Said) -> bytes:
    """A step that is about to be answered."""
    result = f'"h":"{said.digest()}","r":{said.reward},"d":{said.done}'
    return f'{{"n":{n},"a":{dump(action)},{result}}}\n'.encode()


def line(record: dict[str, Any]) -> bytes:
    """A record as it is appended."""
    return dump(record).encode() + b"\n"


def read(written: bytes) -> Recorded:
    """Understand whole lines. Raises ValueError for what isn't a journal of ours."""
    lines = written.split(b"\n")[:-1]
    if not lines:
        raise ValueError("the journal is empty")
    try:
        records = [load(text) for text in lines]
    except RecursionError as error:
        raise ValueError(f"a record can't be read: {error!r}") from error
    begun = isinstance(records[0], dict) and "v" in records[0]
    recorded = _first(records[0]) if begun else Recorded()
    for record in records[begun:]:
        _add(recorded, record)
    if not begun and not recorded.resets:
        raise ValueError("the journal doesn't begin with a reset")
    return recorded


def _first(record: dict[str, Any]) -> Recorded:
    match record:
        case {
            "v": 1,
            "episode": str() | None as episode,
            "bundle": str(bundle),
            "reward": str() | None as reward,
            "split": str(split),
            "index": int(index),
            "seed": int(seed),
            "asked": dict(asked),
            "h": str(digest),
        }:
            return Recorded(episode, bundle, reward, split, index, seed, asked, digest)
        case _:
            raise ValueError(f"the first record is none of version {VERSION}: {sorted(record)}")


def _add(recorded: Recorded, record: object) -> None:
    match record:
        case {"n": int(n), "a": dict(action), "h": str(digest)}:
            if n != recorded.seq + 1:
                raise ValueError(f"step {n} follows step {recorded.seq}")
            recorded.steps.append(Played(n, action, digest))
            recorded.tries.clear()
        case {"try": 0, "by": str(server), "asked": dict(asked)}:
            recorded.resets.append(Begun(asked, server))
        case {"try": int(), "by": str(server), "tool": str(tool)}:
            recorded.tries.append(server)
            recorded.tried = tool
        case {"try": int(), "by": str(server)}:  # of before the tool was written down
            recorded.tries.append(server)
        case {"epoch": int(epoch)}:
            recorded.epoch = epoch
        case {"snap": int(n), "turn": int(turn), "state": state, "reply": dict(reply)}:
            recorded.snapshot = Snapshot(n, turn, state, reply)
            recorded.steps.clear()
        case {"lost": str(reason)}:
            recorded.lost = reason
        case _:
            raise ValueError(f"a record of unknown kind: {str(record)[:100]}")
