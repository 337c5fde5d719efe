"""A bundle: named splits of tasks, how to open one, and what their scores are worth.

Bundles are found by name at run time (entry point group `agent_env.bundles`, `module:attribute`,
or a folder), so that nothing in the framework imports one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import random
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic_core import to_jsonable_python

from agent_env.errors import BundleError, BundleNotFound, RewardUndefined
from agent_env.nearest import nearest
from agent_env.task import Task
from agent_env.types import TaskData, ToolSpec

GROUP = "agent_env.bundles"

MEAN = "mean"
"""The reward that is the mean of all scores."""

Calls = list[tuple[str, dict[str, Any]]]
"""Tool calls in order: name and arguments."""


class Bundle:
    """Subclass it, set `name` and `splits`, write `tasks` and `open`."""

    name: str
    splits: tuple[str, ...]

    rewarded: str | None = None
    """The score that is the reward, or "mean" for the mean of all; None where there is only one.
    Override `reward` for any other rule."""

    def tasks(self, split: str) -> Sequence[TaskData]:
        """The tasks of a split, in order: `tasks(split)[i].index == i`. Raises KeyError."""
        raise NotImplementedError(f"{type(self).__name__} has no tasks()")

    def open(self, data: TaskData) -> Task:
        """A new episode of that task, not yet reset. Splits may differ in their class."""
        raise NotImplementedError(f"{type(self).__name__} has no open()")

    def tools(self, split: str) -> list[ToolSpec]:
        """What the model may call in that split; the tasks of one split share their tools."""
        return type(self.open(self.tasks(split)[0])).tools()

    def expert(self, data: TaskData, *, noise: float, rng: random.Random) -> Calls:
        """Good tool calls for the task, for a warm start; `noise` in [0, 1] spoils them.

        All calls of the episode: where a turn doesn't end by itself, `end_turn` is one of them.
        """
        raise NotImplementedError(f"the bundle {self.name} has no expert")

    def reward(self, scores: dict[str, float]) -> float | None:
        """One reward in [0, 1] from a task's scores, None for unscored.

        By `rewarded`, or the only score. Raises RewardUndefined; override it to weigh several.
        """
        if self.rewarded is not None:
            return reward_by(self.rewarded, scores)
        if len(scores) != 1:
            raise RewardUndefined(
                f"{self.name}: one score is a reward, the task recorded: {_ids(scores)};"
                ' set rewarded to one of them or to "mean", or override reward()'
            )
        return next(iter(scores.values()))

    @property
    def content_hash(self) -> str:
        """SHA-256 of every task and tool of every split: equal hashes mean equal tasks."""
        digest = hashlib.sha256()
        for split in self.splits:
            for part in (*self.tasks(split), *self.tools(split)):
                text = json.dumps(vars(part), sort_keys=True, default=to_jsonable_python)
                digest.update(text.encode() + b"\n")
        return digest.hexdigest()


def reward_by(rule: str, scores: dict[str, float]) -> float:
    """A score by its id, or the mean of all for "mean". Raises RewardUndefined."""
    if rule in scores:
        return scores[rule]
    if rule == MEAN and scores:
        return sum(scores.values()) / len(scores)
    raise RewardUndefined(f"the reward is {rule!r}, the task recorded: {_ids(scores)}")


def load_bundle(ref: str | Path | Bundle) -> Bundle:
    """The bundle that `ref` names.

    `ref` is an installed bundle's name, `module:attribute`, or a folder with an `__init__.py`
    that defines `bundle`. Raises BundleNotFound, with the known names, and BundleError.
    """
    if isinstance(ref, Bundle):
        return ref
    text = str(ref)
    if _on_disk(Path(text, "__init__.py").is_file):
        return _attribute(_import_folder(Path(text).resolve()), "bundle")
    if ":" in text:
        module, _, attribute = text.partition(":")
        if not all(map(str.isidentifier, [*module.split("."), attribute])):
            raise BundleNotFound(
                f"{text!r} isn't module:attribute, such as my_package.tasks:bundle"
            )
        return _attribute(_import(module, text), attribute)
    return _by_name(text)


def _attribute(module: ModuleType, name: str) -> Bundle:
    found = getattr(module, name, None)
    if isinstance(found, Bundle):
        return found
    where = module.__file__ or module.__name__
    if found is None:
        hint = f"write `{name} = MyBundle()` at its end, with your Bundle's class"
        raise BundleError(f"{where} defines no `{name}`: {hint}")
    hint = ""
    if isinstance(found, type) and issubclass(found, Bundle):
        hint = f"; it is the class: write `{name} = {found.__name__}()`"
    raise BundleError(f"{where}: `{name}` is {found!r}, which is not a Bundle{hint}")


def installed() -> dict[str, EntryPoint]:
    """The bundles that packages have announced, by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _on_disk(there: Callable[[], bool]) -> bool:
    try:
        return there()
    except (OSError, ValueError):  # too long for a path, or with a null byte in it
        return False


def _by_name(name: str) -> Bundle:
    known = installed()
    if name in known:
        return _attribute(_import(known[name].module, name), known[name].attr)
    # A box runs the bare source tree: nothing is installed there, so no entry points exist.
    if name.isidentifier() and importlib.util.find_spec(f"{GROUP}.{name}"):
        return _attribute(_import(f"{GROUP}.{name}", name), "bundle")
    if name and _on_disk(Path(name).is_dir):
        raise BundleNotFound(f"the folder {name!r} has no __init__.py that defines `bundle`")
    near = nearest(name, sorted(known), listed="installed")
    raise BundleNotFound(f"no bundle {name!r}; {near}; or give module:attribute or a folder")


def _import(module: str, ref: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except BundleError:
        raise
    except ModuleNotFoundError as error:
        ours = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        kind = BundleNotFound if ours else BundleError
        raise kind(f"{ref!r}: no module {error.name!r}") from error
    except (Exception, SystemExit) as error:
        raise BundleError(f"{ref!r} can't be imported: {told(error)}") from error


def _import_folder(folder: Path) -> ModuleType:
    name = f"agent_env_bundle_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
    if spec is None or spec.loader is None:
        raise BundleError(f"{folder} can't be imported")
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs, so that the folder's modules can import one another.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception | SystemExit) and not isinstance(error, BundleError):
            raise BundleError(f"{folder} can't be imported: {told(error)}") from error
        raise
    return module


def told(error: BaseException) -> str:
    """What was raised by a bundle, and the last line of its own that led there."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if _own(frame.filename)), frames[-1])
    return f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"


def _own(file: str) -> bool:
    """Neither Python's, nor a package's, nor this one's outside of its bundles."""
    path, ours = Path(file), Path(__file__).parent
    if path.is_relative_to(ours):
        return path.is_relative_to(ours / "bundles")
    installed_by_others = {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    return path.is_absolute() and not any(map(path.is_relative_to, installed_by_others))


def _ids(scores: dict[str, float]) -> str:
    return ", ".join(sorted(scores)) or "none"
