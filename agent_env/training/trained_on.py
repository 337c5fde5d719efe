"""What a model was trained on: each bundle's tools and tasks, as hashes, in `environment.json`.

It lies in a job's `out` folder from before the first step, in each checkpoint, and in the folder
of the model that the job leaves. A checkpoint gone on with under other tools or tasks would train
in silence on something else; a model given to another job expects the tools that it has learned.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agent_env.client import AgentEnv
from agent_env.training.checkpoints import latest_complete_checkpoint
from agent_env.training.config import ConfigError

RECORD = "environment.json"

_log = logging.getLogger(__name__)


class Served(BaseModel):
    """One bundle as its server tells it."""

    model_config = ConfigDict(frozen=True)

    content: str | None
    """SHA-256 of all its tasks and tools; None where a stock server serves it."""
    tools: Mapping[str, Mapping[str, str]]
    """SHA-256 of each tool's schema and description, by split and name."""


class TrainedOn(BaseModel):
    """The bundles of one training, by name."""

    model_config = ConfigDict(frozen=True)

    reward: str | None
    """What the server makes its rewards of, as `AgentEnv.reward` has it."""
    bundles: Mapping[str, Served]


def now_served(env: AgentEnv, splits: Iterable[str]) -> TrainedOn:
    """What the server has in those splits. Raises TaskNotFound."""
    tools: dict[str, dict[str, dict[str, str]]] = {}
    for split in sorted(set(splits)):
        listed = {tool.name: _sha256(tool.model_dump_json()) for tool in env.tools(split)}
        tools.setdefault(env.bundle_of(split), {})[split] = listed
    bundles = {
        name: Served(content=env.content_hashes.get(name), tools=by_split)
        for name, by_split in tools.items()
    }
    return TrainedOn(reward=env.reward, bundles=bundles)


def write(folder: Path, record: TrainedOn) -> None:
    """Beside, then renamed: never half there."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{RECORD}.partial"
    beside.write_text(record.model_dump_json(indent=1))
    beside.replace(folder / RECORD)


def carry(folder: Path, into: Path) -> None:
    """Take the record along, if there is one, to where a model or a checkpoint is put."""
    if (folder / RECORD).is_file():
        into.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / RECORD, into / RECORD)


def carry_to_checkpoint(out: Path, step: int) -> None:
    """Put the record of `out` into the checkpoint of that step, before the trainer writes it."""
    carry(out, out / f"checkpoint-{step}")


def read(folder: Path) -> TrainedOn | None:
    """The record of a folder, None if it has none. Raises ConfigError."""
    try:
        return TrainedOn.model_validate_json((folder / RECORD).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        raise ConfigError(
            [f"{folder / RECORD} can't be read; delete it if you know what this was trained on"]
        ) from None


def is_of(folder: Path, now: TrainedOn) -> bool:
    """Whether the folder's record says so; not without one, or with one that can't be read."""
    with suppress(ConfigError):
        return read(folder) == now
    return False


def resume_faults(out: Path, now: TrainedOn) -> Iterator[str]:
    """Why the checkpoint in `out`, if there is one, can't be gone on with."""
    checkpoint = latest_complete_checkpoint(out)
    if checkpoint is None:
        return
    before = read(checkpoint) or read(out)  # what comes back of a job may be its checkpoints only
    if before is None:
        _log.warning("%s doesn't say which tools and tasks it was trained on", checkpoint)
    elif changes := list(_tools_changed(before, now)) or list(_rest_changed(before, now)):
        yield (
            f"{checkpoint} was trained on another environment: {'; '.join(changes)}. Start anew"
            " in an empty out folder, or serve the version it was trained on"
        )


def model_faults(model: Path, now: TrainedOn, named: str) -> Iterator[str]:
    """Why the model in that folder can't be used here; other tasks are only warned of."""
    before = read(model)
    if before is None:
        return
    if changes := list(_tools_changed(before, now)):
        yield (
            f"{named}: {model} has learned other tools: {'; '.join(changes)}. Train it anew on"
            " these, or serve the version it was trained on"
        )
    for name in before.bundles.keys() & now.bundles.keys():
        if before.bundles[name].content != now.bundles[name].content:
            _log.warning("%s: it was trained on other tasks of %s than these", named, name)


def _tools_changed(before: TrainedOn, now: TrainedOn) -> Iterator[str]:
    """Of the splits that both know."""
    for name in sorted(before.bundles.keys() & now.bundles.keys()):
        had, has = before.bundles[name].tools, now.bundles[name].tools
        for split in sorted(had.keys() & has.keys()):
            if said := ", ".join(_differences(had[split], has[split])):
                yield f"tools of {name}, split {split}: {said}"


def _differences(had: Mapping[str, str], has: Mapping[str, str]) -> Iterator[str]:
    for tool in sorted(had.keys() | has.keys()):
        if tool not in has:
            yield f"{tool} is gone"
        elif tool not in had:
            yield f"{tool} is new"
        elif had[tool] != has[tool]:
            yield f"{tool} has changed"


def _rest_changed(before: TrainedOn, now: TrainedOn) -> Iterator[str]:
    if _splits(before) != _splits(now):
        yield f"its splits were {', '.join(_splits(before))}, now {', '.join(_splits(now))}"
    if before.reward != now.reward:
        yield f"the server's --reward was {before.reward}, now {now.reward}"
    for name in sorted(before.bundles.keys() & now.bundles.keys()):
        if before.bundles[name].content != now.bundles[name].content:
            yield f"the tasks of {name} have changed, or tools of its other splits"


def _splits(record: TrainedOn) -> list[str]:
    return [
        f"{name}:{split}"
        for name, bundle in sorted(record.bundles.items())
        for split in sorted(bundle.tools)
    ]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
