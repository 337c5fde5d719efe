"""Client, server and journal under schedules of faults that nobody thought of.

A few in `make test`; many with `--hypothesis-profile=chaos`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent_env.client._policy import Policy

from .schedules.world import CURABLE, Client, Fault, World

CLIENTS = 3
WHO = st.integers(0, CLIENTS - 1)


class Schedules(RuleBasedStateMachine):
    """Whatever happens: nothing is done twice, nothing is invented, nothing takes for ever."""

    faults: Sequence[Fault] = tuple(Fault)
    slots = st.integers(1, CLIENTS + 1)
    budgets: st.SearchStrategy[float | None] = st.sampled_from([None, 5.0, 20.0])
    reset_timeout = 20.0

    @initialize(data=st.data())
    def begin(self, data: Any) -> None:
        one = st.sampled_from(self.faults)
        few = st.lists(one, min_size=1, max_size=3)
        # Most resets go well: else hardly any step would be tried.
        self.of_a_reset = st.one_of(st.builds(list[Fault]), st.builds(list[Fault]), few)
        self.of_a_step = st.lists(one, min_size=1, max_size=5)
        policy = Policy(
            patience=4.0,
            reset_timeout=self.reset_timeout,
            step_timeout=10.0,
            waits_for_server=True,
            budget=data.draw(self.budgets),
        )
        self.world = World(CLIENTS, data.draw(self.slots), policy)
        for client in self.world.clients:
            client.reset()
            self.world.run()

    @rule(who=WHO, data=st.data(), waits=st.booleans())
    def reset(self, who: int, data: Any, waits: bool) -> None:
        client = self.world.clients[who]
        if client.ready_at is None:
            client.faults = data.draw(self.of_a_reset)
            client.reset()
            self.world.run(None if waits else 0)

    @rule(who=WHO, n=st.integers(1, 9), data=st.data(), waits=st.booleans())
    def step(self, who: int, n: int, data: Any, waits: bool) -> None:
        client = self.world.clients[who]
        if client.ready_at is None and not client.finished:
            client.faults = data.draw(self.of_a_step)
            client.step(n)
            self.world.run(None if waits else 0)

    @rule(who=WHO, n=st.integers(1, 9))
    def play_to_the_end(self, who: int, n: int) -> None:
        client = self.world.clients[who]
        while client.ready_at is None and client.playing:
            client.step(n)
            self.world.run()

    @rule(who=WHO)
    def close(self, who: int) -> None:
        client = self.world.clients[who]
        if client.ready_at is None:
            client.close()

    @rule(events=st.integers(1, 12))
    def time_passes(self, events: int) -> None:
        self.world.run(events)

    @rule()
    def all_is_quiet(self) -> None:
        self.world.run()

    @rule(away_s=st.floats(0.0, 6.0))
    def the_server_is_killed(self, away_s: float) -> None:
        self.world.server.kill(self.world.now + away_s)

    @precondition(lambda self: self.faults is not CURABLE)
    @rule(away_s=st.floats(10.0, 200.0))
    def the_server_is_away_for_long(self, away_s: float) -> None:
        self.world.server.kill(self.world.now + away_s)

    @invariant()
    def sessions_are_never_above_capacity(self) -> None:
        if hasattr(self, "world"):
            assert self.world.server.most <= self.world.server.slots

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.run()
        for client in self.world.clients:
            told = client.outcomes
            assert client.expected == sum(told.values()) + client.playing, told
            self.judge(client)

    def judge(self, client: Client) -> None:
        """Faults of any kind may cost rollouts, each under a name."""
        assert set(client.outcomes) <= NAMES, client.outcomes


class CurableSchedules(Schedules):
    """Cut connections and a server that is killed and comes back cost time and nothing else."""

    faults = CURABLE
    slots = st.just(CLIENTS)
    budgets = st.just(None)
    reset_timeout = 2000.0

    def judge(self, client: Client) -> None:
        """Not a rollout is lost."""
        assert set(client.outcomes) <= {"scored", "omitted"}, client.outcomes


NAMES = {
    "scored",
    "omitted",
    "AtCapacity",
    "JournalFull",
    "ProtocolError",
    "ServerDown",
    "SessionLost",
    "StepTimeout",
}

FEW = 200
"""Schedules of each kind, where nobody asked for more by a profile."""


@pytest.mark.parametrize("machine", [Schedules, CurableSchedules])
def test_no_schedule_of_faults_makes_a_client_believe_what_is_not_so(
    machine: type[Schedules],
) -> None:
    many = settings.get_profile("chaos")
    chosen = settings(
        max_examples=many.max_examples // 2 if settings.default is many else FEW,
        deadline=None,
        stateful_step_count=30,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)
