"""What a pull brought: how much of each job is here, in words or as an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from orchestrator.errors import ResultsCorrupt, ResultsMissing, ResultsPartial

SHOWN = 5


class State(StrEnum):
    """How much of a job, or of a run, is here."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    """What was committed is here and verified; the job hasn't ended well, or not yet."""
    NOTHING = "nothing"
    CORRUPT = "corrupt"
    """The bucket's bytes aren't those that the manifest names."""


class JobPull(BaseModel):
    """One job's results on this machine. `ended`: the word of its COMPLETE, if it has one."""

    model_config = ConfigDict(frozen=True)

    state: State
    ended: str | None = None
    seq: int | None = None
    step: int | None = None
    files: int = 0
    bytes: int = 0
    fetched_bytes: int = 0
    problems: tuple[str, ...] = ()
    """Files whose bytes aren't what the manifest says; they aren't here under their names."""
    notes: tuple[str, ...] = ()
    """Manifests passed over as invalid."""
    kept: tuple[str, ...] = ()
    """What somebody changed here and is still here, in words."""
    left_out: tuple[str, ...] = ()
    """What of its results is no plain file and was never uploaded, in words."""
    withheld: tuple[str, ...] = ()
    """What of its results holds a secret and was never uploaded, in words."""


class PullReport(BaseModel):
    """A run's results on this machine."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    folder: Path
    jobs: dict[str, JobPull]
    over: bool = False
    """Nothing more will come."""

    @property
    def state(self) -> State:
        states = {job.state for job in self.jobs.values()}
        if State.CORRUPT in states:
            return State.CORRUPT
        if states <= {State.NOTHING}:
            return State.NOTHING
        return State.COMPLETE if states == {State.COMPLETE} else State.PARTIAL

    @property
    def files(self) -> int:
        return sum(job.files for job in self.jobs.values())

    @property
    def bytes(self) -> int:
        return sum(job.bytes for job in self.jobs.values())

    def words(self) -> str:
        """One line for people."""
        short = self._short()
        said = f"{self.state}: {self.files} files, {self.bytes / 1e6:.1f} MB in {self.folder}"
        kept = [f"{name}/{words}" for name, job in self.jobs.items() for words in job.kept]
        said = f"{said} ({short})" if short else said
        left_out = self.withheld + self._each(lambda job: job.left_out)
        said = f"{said}, but left out: {_some(left_out)}" if left_out else said
        return f"{said}; changed here and kept: {', '.join(kept)}" if kept else said

    def _short(self) -> str:
        return ", ".join(
            f"{name} {job.state}" for name, job in self.jobs.items() if job.state != "complete"
        )

    def raise_unless_complete(self) -> None:
        """Raises ResultsCorrupt, ResultsMissing or ResultsPartial.

        Partial is also what lacks a result because a secret is in it.
        """
        again = f"Pull again: gpurun pull {self.run_id}"
        if self.state is State.CORRUPT:
            problems = [
                f"{name}: {said}" for name, job in self.jobs.items() for said in job.problems
            ]
            raise ResultsCorrupt("; ".join(problems), hint=f"The rest is verified. {again}")
        if self.state is State.NOTHING:
            raise ResultsMissing(
                f"No job of {self.run_id} has committed anything.", hint=self._why() or again
            )
        if self.state is State.PARTIAL:
            raise ResultsPartial(
                f"Verified, but not complete: {self._short()}.", hint=self._why() or again
            )
        self.raise_if_withheld()

    def _why(self) -> str:
        """Where to read why there is no more; empty while more may come."""
        if not self.over:
            return ""
        logs = f"gpurun logs {self.run_id}"
        # Of a job that committed nothing there is no log, but its box's console.
        told = next((name for name, job in self.jobs.items() if job.state is State.PARTIAL), "")
        return f"The run is over; this is all there is. Why: {logs} {told}".rstrip()

    def raise_if_withheld(self) -> None:
        """Raises ResultsPartial where a result stayed on its box because a secret is in it."""
        if self.withheld:
            raise ResultsPartial(
                f"Never uploaded, as a secret is in it: {_some(self.withheld)}.",
                hint="The rest is verified. Let the job leave the secret out of its results, "
                "and run it again: docs/troubleshooting.md.",
            )

    @property
    def withheld(self) -> tuple[str, ...]:
        """What holds a secret and was never uploaded, with its job, in words."""
        return self._each(lambda job: job.withheld)

    def _each(self, of: Callable[[JobPull], tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(f"{name}/{words}" for name, job in self.jobs.items() for words in of(job))


def _some(words: Sequence[str]) -> str:
    more = [f"{len(words) - SHOWN} more"] if words[SHOWN:] else []
    return ", ".join([*words[:SHOWN], *more])
