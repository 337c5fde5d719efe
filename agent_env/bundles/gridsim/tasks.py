"""Two tasks on one simulation: 24 hours of numbers, or three blocks of words.

Both take two calls: read the day, commit to something. Nothing committed is worth 0, like doing
nothing on purpose.
"""

from agent_env.bundles.gridsim import coarse
from agent_env.bundles.gridsim.frozen import CoarseDay, FineDay, FrozenDay
from agent_env.bundles.gridsim.parameters import site
from agent_env.bundles.gridsim.simulation import (
    HOURS,
    Outcome,
    Schedule,
    ScheduleError,
    simulate,
)
from agent_env.errors import InvalidArguments
from agent_env.task import Task, tool
from agent_env.types import TaskData


class _DayTask(Task):
    """What the two share: the day, and the scores of what was committed."""

    quick = True

    def __init__(self, data: TaskData, frozen: FrozenDay) -> None:
        super().__init__(data)
        self._frozen = frozen
        self._outcome: Outcome | None = None

    def reset(self, seed: int | None) -> str | None:  # noqa: ARG002
        """Start the day over; days are frozen, so the seed changes nothing."""
        self._outcome, self.done = None, False
        return None

    def score(self) -> dict[str, float]:
        """`value` is the reward; `feasible` the share of hours carried out as asked."""
        if self._outcome is None:
            return {"value": 0.0, "committed": 0.0, "feasible": 0.0}
        return {
            "value": self._frozen.value(self._outcome),
            "committed": 1.0,
            "feasible": self._outcome.as_asked_share,
        }

    def _commit(self, schedule: Schedule) -> Outcome:
        self._outcome, self.done = simulate(self._frozen.day(), schedule, site()), True
        return self._outcome


class FineTask(_DayTask):
    """A battery and a generator, hour by hour."""

    def __init__(self, data: TaskData) -> None:
        super().__init__(data, FineDay.model_validate(data.data))

    @tool
    def read_day(self) -> str:
        """Read today's load, wind, solar and price, one line an hour."""
        day = self._frozen.day()
        series = (day.load_kw, day.wind_kw, day.solar_kw, day.price_usd_per_mwh)
        lines = ["hour load_kw wind_kw solar_kw price_usd_per_mwh"]
        lines += [
            " ".join(f"{number:.0f}" for number in (hour, *(each[hour] for each in series)))
            for hour in range(HOURS)
        ]
        return "\n".join(lines)

    @tool
    def commit_schedule(self, battery_kw: list[float], generator_kw: list[float]) -> str:
        """Commit today's schedule and end the day. What can't be carried out is clipped.

        Args:
            battery_kw: 24 numbers, one an hour from hour 0; above 0 charges, below 0 discharges
            generator_kw: 24 numbers, one an hour from hour 0; never below 0
        """
        try:
            schedule = Schedule.of(battery_kw, generator_kw)
        except ScheduleError as error:
            raise InvalidArguments(f"nothing was committed: {error}") from error
        outcome = self._commit(schedule)
        clipped = HOURS - round(outcome.as_asked_share * HOURS)
        return (
            f"The day cost {outcome.cost_usd:.2f} USD; doing nothing would have cost "
            f"{self._frozen.nothing_usd:.2f} USD. Hours not carried out as asked: {clipped}."
        )


class CoarseTask(_DayTask):
    """The block of the day in which the battery is emptied."""

    def __init__(self, data: TaskData) -> None:
        super().__init__(data, CoarseDay.model_validate(data.data))

    @tool
    def read_day(self) -> str:
        """Read today's price in each block of the day."""
        words = coarse.words(self._frozen.day())
        return " ".join(f"{plan} {word}" for plan, word in words.items())

    @tool
    def commit_schedule(self, plan: coarse.Plan) -> str:
        """Commit to the block in which the battery is emptied; it is filled over the night.

        Args:
            plan: one of morning, noon, evening
        """
        return f"value {self._frozen.value(self._commit(coarse.schedule(plan))):.1f}"
