"""What verl's own metrics and the record of rollouts come to: lines of the job's metrics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_env.training._episode import Rollout as Episode
from agent_env.training.job import JobFailed, next_command
from agent_env.training.metrics import Kind, MetricsFile
from agent_env.training.rollouts import Rollout, tally
from agent_env.training.verl.peer import REFUSED

TRAINER_NUMBERS = {
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "learning_rate": "actor/lr",
    "entropy": "actor/entropy",
    "tokens": "response_length/mean",
    "seconds": "timing_s/step",
}
"""Our name and verl's."""

_EPISODE = {field.name for field in fields(Episode)}


@dataclass
class Progress:
    """Turns what verl has written since the last look into lines."""

    verl: Path
    record: Path
    metrics: MetricsFile
    _read: int = 0

    def catch_up(self, step: int) -> None:
        """The line of the step that is gone on from, if verl saved it and died before it logged:
        without verl's own numbers.
        """
        if step and self.metrics.find("train", step) is None:
            self._append("train", step, {})

    def look(self) -> None:
        """A line for each step and eval that verl has logged. Raises JobFailed when a worker's
        guard has tripped: verl would train on without its rollouts.
        """
        if not self.verl.exists():
            return
        with self.verl.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                told = json.loads(line)
                self._tell(int(told["step"]), told["data"])

    def _tell(self, step: int, data: Mapping[str, Any]) -> None:
        if "timing_s/step" in data:
            numbers = {ours: data.get(theirs) for ours, theirs in TRAINER_NUMBERS.items()}
            self._append("train", step, numbers)
        if any(name.startswith("val-") for name in data):
            self._append("eval", step, {"seconds": data.get("timing_s/testing")})

    def _append(self, kind: Kind, step: int, numbers: Mapping[str, Any]) -> None:
        played = list(rollouts(self.record, kind, step))
        values = tally(played).numbers() | dict(numbers)
        self.metrics.append(kind, step, values, datetime.now(UTC))
        for rollout in played:
            if rollout.lost is not None and rollout.lost.startswith(REFUSED):
                raise JobFailed(f"{rollout.lost}; mend the env server, then {next_command()}")


def rollouts(record: Path, kind: str, step: int) -> Iterator[Rollout]:
    """The rollouts of that kind and step, scored and lost."""
    known = list(lines(record))
    several = len({line["bundle"] for line in known} - {None}) > 1
    for line in known:
        # A row that isn't ours names no purpose; its rollout is lost, and counts.
        if (line["purpose"] or "train", line["step"]) == (kind, step):
            episode = Episode(**{name: line[name] for name in _EPISODE & line.keys()})
            yield Rollout(
                reward=episode.reward,
                completion=None,
                row={"task_id": line["task_id"]}
                | ({"environment": line["bundle"]} if several else {}),
                lost=episode.lost,
                episode=episode,
            )


def lines(record: Path) -> Iterator[dict[str, Any]]:
    """The record's whole lines."""
    if not record.exists():
        return
    for text in record.read_text("utf-8").splitlines():
        try:
            yield json.loads(text)
        except ValueError:
            continue


def cut_back(record: Path, step: int, *, evaluated: bool) -> None:
    """Forget the rollouts that are played again: those of steps after that one, and those of its
    eval unless it is `evaluated`.
    """
    ends = {"train": step, "eval": step if evaluated else step - 1}
    kept = [
        line for line in lines(record) if (line["step"] or 0) <= ends.get(line["purpose"], step)
    ]
    fresh = record.with_suffix(".tmp")
    fresh.write_text("".join(json.dumps(line) + "\n" for line in kept), "utf-8")
    fresh.replace(record)


def losses(record: Path, last: int = 64) -> str | None:
    """Of the last rollouts, how many were lost and mostly why; None when none was."""
    recent = list(lines(record))[-last:]
    why = Counter(line["lost"] for line in recent if line["lost"] is not None)
    if not why:
        return None
    reason, _ = why.most_common(1)[0]
    return f"{why.total()} of the last {len(recent)} rollouts were lost, mostly: {reason}"
