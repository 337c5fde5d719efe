"""Where a model is said to be: a folder, or a hub's id. Only names and headers are looked at."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from agent_env.training.config.parsing import near
from agent_env.training.preflight.hub import hub_faults
from agent_env.training.weights import weight_faults

CONFIG, ADAPTER = "config.json", "adapter_config.json"
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
_HUB_ID = re.compile(rf"(?:{_PART}/)?{_PART}")
_LONGEST_ID = 96
_YES = {"1", "true", "yes", "on"}


def source_faults(source: str, named: str) -> Iterator[str]:
    """What keeps the model from being loaded; `named` is what the person calls it.

    The hub is asked last. Raises AgentEnvError when it doesn't answer.
    """
    if source == "tiny":
        return
    if _is_path(source):
        try:
            yield from _folder_faults(Path(source).expanduser(), named)
        except OSError as error:
            yield f"{named}: the folder {source} can't be read: {error.strerror}"
    else:
        yield from _hub_faults(source, named)


def is_adapter(source: str) -> bool:
    """Whether a folder has adapters for another model, and no model of its own."""
    folder = Path(source)
    return (folder / ADAPTER).is_file() and not (folder / CONFIG).is_file()


def is_offline() -> bool:
    """Whether the hub may not be asked, by the variables that its own client reads."""
    told = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(value.lower() in _YES for value in told)


def _is_path(source: str) -> bool:
    try:
        return source != "" and (source[0] in "/.~" or Path(source).exists())
    except OSError:  # too long for one
        return False


def _folder_faults(folder: Path, named: str) -> Iterator[str]:
    if not folder.is_dir():
        beside = [path.name for path in folder.parent.glob("*/")]
        kind = "is a file, not a model's folder" if folder.exists() else "isn't there"
        yield f"{named}: the folder {folder} {kind}{near(folder.name, beside)}"
    elif (folder / CONFIG).is_file():
        yield from _described(folder, named)
    elif (folder / ADAPTER).is_file():
        yield from _adapter_faults(folder, named)
    else:
        within = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}"))
        hint = f"; the model may be its folder {within[0]!r}" if within else ""
        yield f"{named}: {folder} is no model, it has no {CONFIG}{hint}"


def _described(folder: Path, named: str) -> Iterator[str]:
    if "model_type" not in _read(folder / CONFIG):
        yield f"{named}: {folder / CONFIG} says no model_type, so no model can be made of it"
    if not any(folder.glob("*.bin")):
        yield from (f"{named}: {fault}; copy it again" for fault in weight_faults(folder))


def _adapter_faults(folder: Path, named: str) -> Iterator[str]:
    yield from (f"{named}: {fault}; copy it again" for fault in weight_faults(folder))
    base = _read(folder / ADAPTER).get("base_model_name_or_path")
    if not isinstance(base, str):
        yield f"{named}: {folder / ADAPTER} names no base model in base_model_name_or_path"
    else:
        yield from source_faults(base, f"{named}: the adapter's base model")


def _read(path: Path) -> dict[str, object]:
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _hub_faults(source: str, named: str) -> Iterator[str]:
    if not _HUB_ID.fullmatch(source) or len(source) > _LONGEST_ID or re.search(r"--|\.\.", source):
        yield (
            f"{named}: {source!r} is no folder here and can't be a hub's id: that is owner/name,"
            " of letters, digits, '-', '_' and '.'"
        )
    elif is_offline():
        yield from _cached_faults(source, named)
    else:
        yield from hub_faults(source, named, cached=bool(_snapshots(source)))


def _snapshots(source: str) -> list[Path]:
    """Folders of the hub's cache that have the model."""
    folder = _cache() / f"models--{source.replace('/', '--')}"
    return [path.parent for of in (CONFIG, ADAPTER) for path in folder.glob(f"snapshots/*/{of}")]


def _cached_faults(source: str, named: str) -> Iterator[str]:
    snapshots = _snapshots(source)
    if not snapshots:
        cached = ["/".join(path.name.split("--")[1:]) for path in _cache().glob("models--*")]
        yield (
            f"{named}: {source!r} is no folder here, and the hub can't be asked while it is"
            f" switched off (HF_HUB_OFFLINE){near(source, cached)}; fetch it first with"
            f" `hf download {source}`, or give a folder"
        )
    for snapshot in snapshots:
        if (snapshot / CONFIG).is_file() and not any(snapshot.glob("*.bin")):
            for fault in weight_faults(snapshot):
                yield f"{named}: {fault}; fetch it again with `hf download {source}`"


def _cache() -> Path:
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
