"""What is allowed but should be known before anyone says yes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from orchestrator.catalog import MAX_AGE_DAYS, age_days
from orchestrator.offer import Offer
from orchestrator.pins import known_pins
from orchestrator.quote import Cloud
from orchestrator.runbook import Runbook
from orchestrator.spec import JobSpec

LONG = timedelta(days=7)
MADE_FOR_TINY = {
    "sft": ("learning_rate", "completion_tokens"),
    "grpo": ("learning_rate", "completion_tokens"),
    "async_grpo": ("learning_rate", "completion_tokens"),
    "verl_grpo": ("completion_tokens",),
    "evaluate": ("completion_tokens",),
}
"""Settings of a program whose defaults fit the tiny model only."""


def cautions_of(runbook: Runbook, offer: Offer, cloud: Cloud, now: datetime) -> Iterator[str]:
    """One sentence for each thing worth a second look."""
    for reason in offer.passed_over:
        yield f"{reason}; {offer.region} is taken"
    if (age := age_days(offer.as_of, now)) > MAX_AGE_DAYS:
        yield f"prices of {offer.as_of} are {age} days old"
    for name, box in runbook.boxes.items():
        if box.hours > LONG:
            yield f"box {name} may live for {box.hours.days} days"
        if box.spot:
            yield (
                f"box {name} is a spot instance: EC2 may take it away at two minutes' notice"
                f"{_and_then(name, runbook)}"
            )
        yield from _smaller(name, box.instance, box.fallbacks, offer)
    for name in runbook.sources.pins:
        for package, costs in known_pins()[name].without.items():
            if costs:
                yield f"pins {name} come without {package}: {costs}"
    for name, job in runbook.jobs.items():
        yield from _made_for_tiny(name, job)
        if path := runbook.sources.models_here.get(name):
            yield (
                f"jobs.{name}: the box takes model {job.config['model']!r} for a hub's id: it has"
                f" nothing of {path}; a model that isn't on the hub comes as the result of a job:"
                " `model: input` and `inputs: {model: {job: JOB, path: PATH}}`"
            )
    if cloud == "local":
        jobs = runbook.jobs.items()
        if needing := gpu_pins_told({name: _gpu_pins(job, runbook) for name, job in jobs}):
            yield f"{needing}, which a local box hasn't got"
        for name, job in jobs:
            pins = runbook.pins_of(job)
            if job.command and not pins and not job.requirements:
                yield (
                    f"job {name} has no pins: here it sees this machine's Python packages, on AWS "
                    "only the image's"
                )


def gpu_pins_told(pins: Mapping[str, str | None]) -> str:
    """One clause for all jobs whose pins need a GPU, of `pins` by job; empty if there are none."""
    needing = {job: name for job, name in pins.items() if name}
    names = " and ".join(dict.fromkeys(needing.values()))
    what = "jobs" if len(needing) > 1 else "job"
    return f"{what} {', '.join(needing)}: pins {names} need a GPU" if needing else ""


def _made_for_tiny(name: str, job: JobSpec) -> Iterator[str]:
    if job.config.get("model", "tiny") in ("tiny", "input"):
        return
    wanted = MADE_FOR_TINY.get(job.program or "", ())
    if missing := " and ".join(setting for setting in wanted if setting not in job.config):
        yield f"jobs.{name}: {missing} left out: the default is made for the tiny model"


def _gpu_pins(job: JobSpec, runbook: Runbook) -> str | None:
    pins = runbook.pins_of(job)
    return pins if pins and runbook.sources.pins[pins].gpu else None


def _and_then(box: str, runbook: Runbook) -> str:
    fragile = [name for name, job in runbook.jobs.items() if job.box == box and not job.retries]
    if not fragile:
        return "; its jobs then go on from their last checkpoint on a new box"
    return f"; without `retries` that ends {', '.join(fragile)}"


def _smaller(name: str, first: str, fallbacks: tuple[str, ...], offer: Offer) -> Iterator[str]:
    wanted = offer.types[first]
    for fallback in fallbacks:
        other = offer.types[fallback]
        if other.gpus * other.gpu_memory_mib < wanted.gpus * wanted.gpu_memory_mib:
            yield (
                f"box {name}: fallback {fallback} has {other.gpus} {other.gpu}, "
                f"{other.gpu_memory_mib} MiB each; less than {first}"
            )
