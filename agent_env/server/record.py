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


@dataclass(slots=True)
class Recorded:
    """A journal that was read."""

    episode: str | None
    bundle: str
    split: str
    index: int
    seed: int
    asked: dict[str, Any]
    digest: str
    steps: list[Played] = field(default_factory=list)
    """Those after the snapshot, if there is one."""
    snapshot: Snapshot | None = None
    epoch: int = 0
    tries: list[str] = field(default_factory=list)
    """By which servers the step after the last one was begun."""
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
    split: str
    index: int
    seed: int
    asked: dict[str, Any]


def reset_line(first: First, said: Said) -> bytes:
    """The first line of every journal."""
    return line({"v": VERSION, **asdict(first), "h": said.digest()})


def try_line(n: int, server: str) -> bytes:
    """A step that is about to be begun."""
    return line({"try": n, "by": server})


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
        recorded = _first(load(lines[0]))
        for text in lines[1:]:
            _add(recorded, load(text))
    except (KeyError, TypeError) as error:
        raise ValueError(f"a record can't be read: {error!r}") from error
    return recorded


def _first(record: dict[str, Any]) -> Recorded:
    if record["v"] != VERSION:
        raise ValueError(f"the journal is of version {record['v']}, not {VERSION}")
    return Recorded(
        episode=record["episode"],
        bundle=record["bundle"],
        split=record["split"],
        index=record["index"],
        seed=record["seed"],
        asked=record["asked"],
        digest=record["h"],
    )


def _add(recorded: Recorded, record: dict[str, Any]) -> None:
    match record:
        case {"n": n, "a": action, "h": digest}:
            if n != recorded.seq + 1:
                raise ValueError(f"step {n} follows step {recorded.seq}")
            recorded.steps.append(Played(n, action, digest))
            recorded.tries.clear()
        case {"try": _, "by": server}:
            recorded.tries.append(server)
        case {"epoch": epoch}:
            recorded.epoch = epoch
        case {"snap": n, "turn": turn, "state": state, "reply": reply}:
            recorded.snapshot = Snapshot(n, turn, state, reply)
            recorded.steps.clear()
        case {"lost": reason}:
            recorded.lost = reason
        case _:
            raise ValueError(f"a record of unknown kind: {sorted(record)}")
