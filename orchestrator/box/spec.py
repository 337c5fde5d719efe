"""What a box is told to do: one JSON file of the payload, read once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any


class SpecError(Exception):
    """The box spec can't be read or names a path that leaves its folder."""


@dataclass(frozen=True)
class Pins:
    """A hash-locked requirements file of the payload; `python` is "3.12" or None for any."""

    name: str
    file: str
    sha256: str
    gpu: bool
    python: str | None


@dataclass(frozen=True)
class Input:
    """A path among another job's results."""

    job: str
    path: str


@dataclass(frozen=True)
class JobSpec:
    """One process: `program` (a module of agent_env.training) or a shell `command`."""

    name: str
    program: str | None
    command: str | None
    config: dict[str, Any]
    needs: tuple[str, ...]
    inputs: dict[str, Input]
    pins: str | None
    workdir: str | None
    results: tuple[str, ...]
    retries: int
    stall_s: float | None = None
    """Without a new step for so long it counts as frozen; None: it is never judged."""

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Every job that must be done first, those that only inputs name included."""
        return tuple(dict.fromkeys((*self.needs, *(item.job for item in self.inputs.values()))))


@dataclass(frozen=True)
class BoxSpec:
    """Times are epoch seconds; `loss_bound_s` is the oldest work that a dying box may lose."""

    run: str
    box: str
    bucket: str
    region: str
    prefix: str
    planned_at: float
    drain_at: float
    poweroff_at: float
    loss_bound_s: float
    tick_s: float
    price_usd_per_hour: Decimal
    pins: dict[str, Pins]
    jobs: tuple[JobSpec, ...]
    cloud_at: float = 0.0
    spot: bool = False
    secrets: dict[str, str] = field(default_factory=dict)
    """Where each secret variable of the jobs is kept: `ssm:/path` or `secretsmanager:name`."""
    upload_bytes: int | None = None
    """Its share of what the run may put into S3; None: no limit."""
    upload_objects: int | None = None


def read_spec(path: Path) -> BoxSpec:
    """Raises SpecError."""
    try:
        return parse_spec(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(f"{path}: {error!r}") from error


def parse_spec(data: dict[str, Any]) -> BoxSpec:
    """Raises ValueError, KeyError or TypeError on anything but format 1."""
    if data["format"] != 1:
        raise ValueError(f"format {data['format']} is not 1")
    return BoxSpec(
        run=str(data["run"]),
        box=str(data["box"]),
        bucket=str(data["bucket"]),
        region=str(data["region"]),
        prefix=str(data["prefix"]),
        planned_at=float(data["planned_at"]),
        drain_at=float(data["drain_at"]),
        poweroff_at=float(data["poweroff_at"]),
        loss_bound_s=float(data["loss_bound_s"]),
        tick_s=float(data["tick_s"]),
        price_usd_per_hour=Decimal(data["price_usd_per_hour"]),
        pins={name: _pins(name, item) for name, item in data["pins"].items()},
        jobs=tuple(_job(item) for item in data["jobs"]),
        cloud_at=float(data.get("cloud_at", data["poweroff_at"])),
        spot=bool(data.get("spot", False)),
        secrets=dict(data.get("secrets", {})),
        upload_bytes=_whole(data.get("upload_bytes")),
        upload_objects=_whole(data.get("upload_objects")),
    )


def inside(path: str) -> PurePosixPath:
    """A relative path that stays in its folder. Raises ValueError."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise ValueError(f"{path!r} leaves its folder")
    return pure


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _pins(name: str, item: dict[str, Any]) -> Pins:
    file, sha256, gpu = str(item["file"]), str(item["sha256"]), bool(item["gpu"])
    return Pins(name, file, sha256, gpu, item.get("python"))


def _job(item: dict[str, Any]) -> JobSpec:
    inputs = {
        name: Input(it["job"], str(inside(it["path"]))) for name, it in item["inputs"].items()
    }
    return JobSpec(
        name=str(item["name"]),
        program=item.get("program"),
        command=item.get("command"),
        config=dict(item.get("config") or {}),
        needs=tuple(item["needs"]),
        inputs={str(inside(name)): value for name, value in inputs.items()},
        pins=item.get("pins"),
        workdir=item.get("workdir"),
        results=tuple(str(inside(path)) for path in item["results"]),
        retries=int(item["retries"]),
        stall_s=None if item.get("stall_s") is None else float(item["stall_s"]),
    )
