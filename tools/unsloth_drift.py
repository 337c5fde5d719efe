"""What the pinned wheels of Unsloth and TRL say about versions and defaults, read as text.

Nothing is installed or imported: the wheels are opened as archives. Prints each thing that differs
from tests/agent_env/training/unsloth_wheels.json, which --write renews. Exit status: 0 no
difference, 1 some, 2 the wheels can't be had.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "templates" / "pins" / "unsloth.txt"
TABLE = ROOT / "tests" / "agent_env" / "training" / "unsloth_wheels.json"
WHEELS = ROOT / ".wheels-pins"
READ = ("unsloth", "unsloth-zoo", "trl", "transformers")

CAPPED = re.compile(
    r"(trl|transformers|datasets|peft|torch|triton|bitsandbytes|xformers|unsloth_zoo)\b(?!-)\s*(.*)"
)
CONFIGS = (
    ("transformers", "transformers/training_args.py", "TrainingArguments"),
    ("trl", "trl/trainer/base_config.py", "_BaseConfig"),
    ("trl", "trl/trainer/grpo_config.py", "GRPOConfig"),
)
"""Where the trainer's defaults are written, a class after the one it derives from."""
PATCH = "_patch_trl_rl_trainers_impl"
RULES = {
    "warm-up is a tenth": '["warmup_steps"] = 0.1',
    "beta depends on the loss": "in ('dapo', 'dr_grpo') else 0.001",
    "dr_grpo: scaling goes off": "scale_rewards == True or scale_rewards == 'group':",
    "dr_grpo: None keeps scaling": "if scale_rewards == None:",
    "dapo: only when named": "'dapo' and not _unsloth_default_loss_type:",
    "dapo: cut completions are masked": "mask_truncated_completions = True",
    "dapo: epsilon_high": "epsilon_high = 0.28",
    "cispo: epsilon_high": "epsilon_high = 5.0",
    "saving: off without output_dir": "output_dir = 'unsloth_training_checkpoints'",
    "batch: becomes num_generations": "per_device_train_batch_size = num_generations",
    "batch: only with both unset": "if steps_per_generation is None and generation_batch",
    "eval batch: follows only at 8": "if eval_bsz == 8 and args.per_device_train",
    "checkpointing: reentrant": "_gc_kwargs['use_reentrant'] = True",
    "vLLM: colocated": "args.vllm_mode='colocate'",
}
"""Rules written inside strings of Unsloth's generator, each by words that only it has."""


class NoWheels(Exception):
    """The pinned wheels aren't here and can't be fetched; the message is pip's last line."""


class LayoutChanged(Exception):
    """A wheel isn't written as it was: what reads it must be mended first."""


def main() -> int:
    """Parse the command line and do it."""
    parser = argparse.ArgumentParser(prog="unsloth_drift", description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew the table")
    parser.add_argument("--fetch-only", action="store_true", help="only have the wheels here")
    asked = parser.parse_args()
    try:
        fetch()
    except NoWheels as error:
        sys.stderr.write(f"Unsloth's pinned wheels can't be fetched: {error}\n")
        return 2
    if asked.fetch_only:
        return 0
    found = read()
    if asked.write:
        TABLE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", "utf-8")
        return 0
    lines = list(drift(json.loads(TABLE.read_text("utf-8")), found))
    sys.stdout.write("\n".join(lines or ["no drift"]) + "\n")
    return 1 if lines else 0


def wheels() -> dict[str, Path]:
    """The wheel of each package at its locked version, of those that are here."""
    names = {
        name: f"{name.replace('-', '_')}-{version}-*.whl"
        for name, version in locked_versions().items()
    }
    found = {name: sorted(WHEELS.glob(pattern)) for name, pattern in names.items()}
    return {name: paths[0] for name, paths in found.items() if paths}


def fetch() -> None:
    """Download what is missing, by its locked hash. Raises NoWheels."""
    missing = set(READ) - wheels().keys()
    if not missing:
        return
    WHEELS.mkdir(exist_ok=True)
    wanted = WHEELS / "wanted.txt"
    wanted.write_text("".join(_requirement(name) for name in sorted(missing)), "utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-d", str(WHEELS)]
    done = subprocess.run(
        [*command, "-r", str(wanted)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NoWheels((done.stderr.strip().splitlines() or ["pip said nothing"])[-1])


def read() -> dict[str, Any]:
    """Versions, caps, replaced defaults and rules. Raises LayoutChanged, KeyError for no wheel."""
    found: dict[str, Any] = {
        name: {"version": version} for name, version in locked_versions().items()
    }
    paths = wheels()
    for name in ("unsloth", "unsloth-zoo"):
        found[name]["caps"] = _caps(_text(paths[name], ".dist-info/METADATA"))
    patch = _text(paths["unsloth"], "unsloth/models/rl.py")
    found["unsloth"]["defaults"] = replaced = _replaced(patch)
    found["unsloth"]["rules"] = {rule: words in patch for rule, words in RULES.items()}
    names = {"warmup_steps", "epsilon_high", "scale_rewards", "top_k"}.union(*replaced.values())
    defaults: dict[str, Any] = {}
    for package, path, config in CONFIGS:
        defaults |= _defaults(_text(paths[package], path), config)
    found["trl"]["defaults"] = {name: defaults[name] for name in names if name in defaults}
    return found


def drift(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """One line for each place where two tables differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            before, after = old.get(key, "(absent)"), new.get(key, "(absent)")
            yield from drift(before, after, f"{at} / {key}" if at else key)
    elif old != new:
        yield f"{at}: {old!r} -> {new!r}"


def locked_versions() -> dict[str, str]:
    """The version that the lock has of each package that is read."""
    pinned = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", LOCK.read_text("utf-8"), re.MULTILINE))
    return {name: pinned[name] for name in READ}


def _requirement(name: str) -> str:
    text = LOCK.read_text("utf-8")
    found = re.search(rf"^{re.escape(name)}==.*\n(?:    --hash=.*\n)+", text, re.MULTILINE)
    if found is None:
        raise LayoutChanged(f"{LOCK.name} has no {name}")
    return found[0]


def _text(wheel: Path, ending: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(ending) and name.count("/") == ending.count("/"):
                return archive.read(name).decode("utf-8")
    raise LayoutChanged(f"{wheel.name} has no {ending}")


def _caps(metadata: str) -> dict[str, str]:
    caps = {}
    for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE):
        capped = CAPPED.match(line)
        if capped and "extra ==" not in line:
            bounds = capped[2].partition(";")[0].strip().strip("()")
            caps[capped[1]] = ",".join(sorted(bounds.replace(" ", "").split(",")))
    return caps


def _replaced(source: str) -> dict[str, dict[str, Any]]:
    """The tables of replaced defaults in order: of every trainer, of GRPO's, of SFT's."""
    found = [
        (node.lineno, ast.literal_eval(node.value))
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef) and function.name == PATCH
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        if any(getattr(target, "id", None) == "replacements" for target in node.targets)
    ]
    if len(found) != 3:
        raise LayoutChanged(f"{PATCH} has {len(found)} tables of replaced defaults, not 3")
    return dict(zip(("all", "grpo", "sft"), (table for _, table in sorted(found)), strict=True))


def _defaults(source: str, config: str) -> dict[str, Any]:
    """Default of each field that a config class writes down; as text where it is no literal."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == config:
            fields = [part for part in node.body if isinstance(part, ast.AnnAssign) and part.value]
            return {ast.unparse(field.target): _default(field.value) for field in fields}
    raise LayoutChanged(f"there is no class {config}")


def _default(value: ast.expr | None) -> Any:
    if isinstance(value, ast.Call):
        named = {keyword.arg: keyword.value for keyword in value.keywords}
        value = named.get("default", named.get("default_factory"))
    try:
        return ast.literal_eval(value) if value else None
    except ValueError:
        return ast.unparse(value) if value else None


if __name__ == "__main__":
    sys.exit(main())
