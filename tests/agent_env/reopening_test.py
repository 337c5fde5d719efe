"""How long a session waits: decided with a clock of our own, so that no test waits for it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agent_env.client._dial import Address
from agent_env.client._frames import Refusal
from agent_env.client._openenv import Call, reopened
from agent_env.client._policy import PROBE_S, Policy
from agent_env.client._site import Site, Visitor, Waits
from agent_env.client._talk import Command, Cut, Open, Pause, Talk
from agent_env.errors import AtCapacity, JournalFull, ProtocolError, ServerDown

SEEDS = Policy(patience=4.0, reset_timeout=60.0, waits_for_server=True)
OLD = Policy(patience=4.0, reset_timeout=60.0, waits_for_server=False)


Fault = Callable[[float], Exception | None]


def known_site(url: str = "http://127.0.0.1:1") -> Site:
    """One that has answered, and that no other test waits for."""
    site = Site(Address(url))
    site.answered, site.waits = True, Waits()
    return site


@dataclass
class World:
    """A clock that moves by pausing, and a server in a state."""

    fails_with: Fault
    site: Site = field(default_factory=known_site)
    now: float = 1000.0
    connects: list[float] = field(default_factory=list)

    def reopen(self, policy: Policy, visitor: Visitor | None = None) -> str:
        call = Call(
            visitor=visitor or Visitor(),
            deadline=self.now + policy.call_s(policy.reset_timeout),
            generation=0,
            opened_at=self.now,
        )
        budget_s = policy.wait_s(ServerDown())
        if self.site.waits.given_up(call.visitor, ServerDown, budget_s, self.now):
            call.connect_s = PROBE_S
        talk = reopened(
            lambda: self._attempt(call),
            call,
            self.site,
            policy,
            clock=lambda: self.now,
            jitter=lambda: 0.5,
        )
        return self._drive(talk)

    def _drive(self, talk: Talk[str]) -> str:
        try:
            command = next(talk)
            while True:
                command = self._carry_out(talk, command)
        except StopIteration as end:
            return str(end.value)

    def _carry_out(self, talk: Talk[str], command: Command) -> Command:
        if isinstance(command, Pause):
            assert command.seconds > 0
            self.now += command.seconds
            return talk.send(None)
        error = self.fails_with(self.now)
        return talk.send("open") if error is None else talk.throw(error)

    def _attempt(self, call: Call) -> Talk[str]:
        self.connects.append(call.connect_s)
        result: str = yield Open({}, call.connect_s)
        self.site.waits.over(ServerDown, AtCapacity)
        return result


def down(until: float = float("inf")) -> Fault:
    return lambda now: ServerDown("refused") if now < until else None


def full() -> Refusal:
    return Refusal(AtCapacity("full"), {"code": "CAPACITY_REACHED"})


def busy(until: float = float("inf")) -> Fault:
    return lambda now: full() if now < until else None


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
    world = World(lambda now: ServerDown("refused") if now < 1030 else full())
    with pytest.raises(AtCapacity):
        world.reopen(SEEDS)
    assert 1034.0 <= world.now < 1036.0


def test_a_server_that_accepts_and_cuts_off_is_restarting() -> None:
    world = World(lambda now: Cut(None, "cut") if now < 1005 else None)
    assert world.reopen(SEEDS) == "open"
    world = World(lambda _: Cut(None, "cut"))
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


def test_a_wait_is_as_long_as_its_own_policy_says_whoever_began_it() -> None:
    short = Policy(patience=0.1, reset_timeout=5.0, waits_for_server=True)
    world = World(down())
    with pytest.raises(ServerDown):
        world.reopen(short)
    assert world.now == pytest.approx(1005.0)
    with pytest.raises(ServerDown):
        world.reopen(SEEDS)
    assert world.now == pytest.approx(1060.0)


def test_a_budget_ends_whatever_is_waited_for() -> None:
    tight = Policy(patience=30.0, reset_timeout=60.0, waits_for_server=True, budget=7.0)
    for fault in (down(), busy(), lambda _: Cut(None, "cut")):
        world = World(fault)
        with pytest.raises((ServerDown, AtCapacity)):
            world.reopen(tight)
        assert world.now == pytest.approx(1007.0)


def test_a_full_journal_is_waited_out_at_the_servers_pace() -> None:
    said = {"code": "EXECUTION_ERROR", "reason": "JOURNAL_FULL", "retry_after_s": 5}
    world = World(lambda now: Refusal(JournalFull("full"), said) if now < 1012 else None)
    assert world.reopen(SEEDS) == "open"
    assert len(world.connects) == 4
    world = World(lambda _: Refusal(JournalFull("full"), said))
    with pytest.raises(JournalFull):
        world.reopen(SEEDS)
    assert world.now == pytest.approx(1124.0)


def test_one_cut_connection_is_replaced_at_once() -> None:
    faults = iter([Cut(None, "cut"), None])
    world = World(lambda _: next(faults))
    assert world.reopen(OLD) == "open"
    assert world.now == 1000.0


def test_before_a_first_session_nothing_is_waited_for_but_room() -> None:
    site = known_site()
    site.answered = False
    world = World(down(until=1001.0), site=site)
    with pytest.raises(ServerDown):
        world.reopen(SEEDS)
    assert world.now == 1000.0
    world.fails_with = busy(until=1003.0)
    assert world.reopen(SEEDS) == "open"


@pytest.mark.parametrize(
    "options",
    [
        {"patience": -1.0},
        {"patience": float("inf")},
        {"reset_timeout": 0.0},
        {"step_timeout": float("nan")},
        {"budget": -3.0},
    ],
)
def test_a_time_that_can_not_be_is_refused_by_name(options: dict[str, float]) -> None:
    good = {"patience": 1.0, "reset_timeout": 1.0, "step_timeout": 1.0}
    with pytest.raises(ValueError, match=next(iter(options))):
        Policy(waits_for_server=True, **{**good, **options})


def test_clients_of_one_address_share_its_waits() -> None:
    one, other = Site(Address("http://127.0.0.1:1")), Site(Address("http://127.0.0.1:1"))
    assert one.waits is other.waits
    assert one.waits is not Site(Address("http://127.0.0.1:2")).waits


def test_a_site_pickles_as_one_that_knows_nothing() -> None:
    site = Site(Address("http://127.0.0.1:1", token="secret"))
    site.answered = True
    copy = pickle.loads(pickle.dumps(site))
    assert (copy.address, copy.answered) == (site.address, False)
    assert "secret" not in repr(site.address)


def test_a_handshake_that_breaks_is_no_mistake_of_who_knows_the_server() -> None:
    site = known_site()
    site.answered = False
    broke = lambda now: Cut(None, "in its handshake") if now < 1002.0 else None  # noqa: E731
    with pytest.raises(ServerDown):
        World(broke, site=site).reopen(SEEDS)
    site.extended = True
    assert World(broke, site=site).reopen(SEEDS) == "open"
