"""Room for sessions, under every order of coming, waiting, going and dying."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_env.server.slots import Slots

LIMIT = 3
IDS = ["a", "b", "c", "d", "e"]
NAMES = st.lists(st.sampled_from(IDS))

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from([None, *IDS])),
        st.tuples(st.just("queue"), st.none()),
        st.tuples(st.just("drop"), st.integers(0, 5)),
        st.tuples(st.just("release"), st.none()),
        st.tuples(st.just("give up"), NAMES | st.none()),
        st.tuples(
            st.just("die"), st.tuples(st.integers(1, LIMIT), st.lists(st.sampled_from(IDS)))
        ),
    ),
    max_size=30,
)


class World:
    """Slots, and what must be true of them by a simple count."""

    def __init__(self, claims: list[str]) -> None:
        self.slots = Slots(LIMIT)
        left = self.slots.claim(claims)
        assert len(claims) == self.slots.claimed + len(left)
        self.taken = 0
        self.places: list[asyncio.Future[None]] = []

    @property
    def active(self) -> int:
        return self.taken + sum(place.done() for place in self.places)

    def do(self, step: str, what: object) -> None:
        match step, what:
            case "take", str() | None as session_id:
                self.taken += self.slots.take(session_id)
            case "queue", _ if self.slots.take():
                self.taken += 1
            case "queue", _:
                place = self.slots.queue()
                self.places += [] if place is None else [place]
            case "drop", int() as index if index < len(self.places):
                if self.places[index].cancel():
                    del self.places[index]
            case "release", _ if self.active:
                self._forget(1)
                self.slots.release(None)
            case "give up", list() | None as session_ids:
                self.slots.give_claims_up(session_ids)
            case "die", (int() as count, list() as session_ids) if count <= self.active:
                self._forget(count)
                self.slots.exchange(count, dict.fromkeys(session_ids[:count]))

    def _forget(self, count: int) -> None:
        """So many of those that have room are gone."""
        for place in [place for place in self.places if place.done()][:count]:
            self.places.remove(place)
            count -= 1
        self.taken -= count

    def check(self) -> None:
        assert self.slots.active == self.active
        assert self.slots.active + self.slots.claimed <= LIMIT
        waiting = [place for place in self.places if not place.done()]
        assert self.slots.waiting == len(waiting)
        assert not (waiting and self.slots.free), "somebody waits beside free room"
        # First come, first served: nobody has room who came after somebody who waits.
        assert self.places == sorted(self.places, key=lambda place: not place.done())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(IDS), unique=True), STEPS)
def test_room_is_never_given_twice_and_never_withheld(
    claims: list[str], steps: list[tuple[str, object]]
) -> None:
    async def main() -> None:
        world = World(claims)
        for step, what in steps:
            world.do(step, what)
            await asyncio.sleep(0)
            world.check()

    asyncio.run(main())
