"""How long a session waits: decided with a clock of our own, so that no test waits for it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agent_env.client._openenv import PROBE_S, Policy, Site, Visitor, reopened
from agent_env.errors import AtCapacity, ProtocolError, ServerDown, SessionError, SessionLost

SEEDS = Policy(patience=4.0, reset_timeout=60.0, waits_for_server=True)
OLD = Policy(patience=4.0, reset_timeout=60.0, waits_for_server=False)


@dataclass
class World:
    """A clock that moves by sleeping, and a server in a state."""

    fails_with: Callable[[float], SessionError | None]
    site: Site = field(default_factory=lambda: Site("http://127.0.0.1:1"))
    now: float = 1000.0
    connects: list[float] = field(default_factory=list)

    def reopen(self, policy: Policy, visitor: Visitor | None = None) -> str:
        return reopened(
            self._attempt,
            self.site,
            visitor or Visitor(),
            policy,
            clock=lambda: self.now,
            sleep=self._sleep,
        )

    def _attempt(self, connect_s: float) -> str:
        self.connects.append(connect_s)
        error = self.fails_with(self.now)
        if error is not None:
            raise error
        return "open"

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def down(until: float = float("inf")) -> Callable[[float], SessionError | None]:
    return lambda now: ServerDown("refused") if now < until else None


def busy(until: float = float("inf")) -> Callable[[float], SessionError | None]:
    return lambda now: AtCapacity("full") if now < until else None


def test_a_refusing_server_is_waited_for_as_long_as_a_reset_may_take() -> None:
    world, visitor = World(down(until=1059.0)), Visitor()
    assert world.reopen(SEEDS, visitor) == "open"
    assert visitor.waited_s == pytest.approx(world.now - 1000.0)
    assert 1059.0 <= world.now < 1061.0


def test_a_wait_for_a_refusing_server_ends() -> None:
    world = World(down())
    with pytest.raises(ServerDown):
        world.reopen(SEEDS)
    assert world.now == pytest.approx(1060.0)


def test_patience_counts_where_it_is_the_longer() -> None:
    world = World(down())
    with pytest.raises(ServerDown):
        world.reopen(Policy(patience=90.0, reset_timeout=60.0, waits_for_server=True))
    assert world.now == pytest.approx(1090.0)


def test_the_old_rule_gives_a_refusing_server_up_at_once() -> None:
    world = World(down(until=1001.0))
    with pytest.raises(ServerDown):
        world.reopen(OLD)
    assert world.now == 1000.0


@pytest.mark.parametrize("policy", [SEEDS, OLD])
def test_a_busy_server_is_waited_for_briefly(policy: Policy) -> None:
    world = World(busy(until=1003.0))
    assert world.reopen(policy) == "open"
    world = World(busy())
    with pytest.raises(AtCapacity):
        world.reopen(policy)
    assert world.now == pytest.approx(1004.0)


def test_a_server_that_comes_back_full_costs_both_waits_and_no_more() -> None:
    world = World(lambda now: ServerDown("refused") if now < 1030 else AtCapacity("full"))
    with pytest.raises(AtCapacity):
        world.reopen(SEEDS)
    assert 1034.0 <= world.now < 1036.0


def test_a_server_that_accepts_and_cuts_off_is_restarting() -> None:
    world = World(lambda now: SessionLost("cut") if now < 1005 else None)
    assert world.reopen(SEEDS) == "open"
    world = World(lambda _: SessionLost("cut"))
    with pytest.raises(ServerDown, match="cut"):
        world.reopen(OLD)


def test_what_waiting_can_not_cure_is_raised_at_once() -> None:
    world = World(lambda _: ProtocolError("no such split"))
    with pytest.raises(ProtocolError):
        world.reopen(SEEDS)
    assert world.now == 1000.0


def test_many_sessions_wait_once_for_one_server() -> None:
    world = World(down())
    for _ in range(64):
        with pytest.raises(ServerDown):
            world.reopen(SEEDS, Visitor())
    assert world.now == pytest.approx(1060.0)
    assert world.connects[-1] == PROBE_S


def test_the_next_step_waits_anew_and_again_once() -> None:
    world = World(down())
    visitors = [Visitor() for _ in range(8)]
    for step in (1, 2, 3):
        for visitor in visitors:
            with pytest.raises(ServerDown):
                world.reopen(SEEDS, visitor)
        assert world.now == pytest.approx(1000.0 + 60.0 * step)


def test_many_sessions_wait_once_for_room() -> None:
    world = World(busy())
    for _ in range(64):
        with pytest.raises(AtCapacity):
            world.reopen(SEEDS, Visitor())
    assert world.now == pytest.approx(1004.0)


def test_a_server_that_answered_is_waited_for_afresh() -> None:
    world = World(down())
    with pytest.raises(ServerDown):
        world.reopen(SEEDS)
    world.fails_with = down(until=0)
    assert world.reopen(SEEDS) == "open"
    world.fails_with = down()
    with pytest.raises(ServerDown):
        world.reopen(SEEDS)
    assert world.now == pytest.approx(1120.0)


def test_a_site_pickles_as_one_that_knows_nothing() -> None:
    site = Site("http://127.0.0.1:1")
    site.answered = True
    copy = pickle.loads(pickle.dumps(site))
    assert (copy.url, copy.answered) == (site.url, False)
