"""Errands of a box whose bucket is in memory."""

from __future__ import annotations

from pathlib import Path

from orchestrator.box.body import Body
from orchestrator.box.deadline import Clock
from orchestrator.box.errands import Errands, Host
from orchestrator.box.spec import BoxSpec
from orchestrator.box.state import State
from orchestrator.box.store import Store

from .memory_store import Held, MemoryStore
from .rig import PREFIX


class _Body(Body):
    def __init__(self, held: Held) -> None:
        self._held = held

    def store(self, spec: BoxSpec, *, fast: bool) -> Store:
        return MemoryStore(self._held)


def errands_of(state: State, held: Held, root: Path) -> Errands:
    host = Host(root, ("true",), None, "i-0", state.spec.planned_at)
    return Errands(state, host, Clock(not_before=state.spec.planned_at), _Body(held))


def console_key() -> str:
    return f"{PREFIX}boxes/x/console.log"
