"""What Unsloth's pinned wheels say is what our table of them says, and what we spell out."""

from __future__ import annotations

import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agent_env.training.unsloth import spelled_out, trl_defaults
from tools import unsloth_drift
from tools.unsloth_drift import LayoutChanged, drift, read, wheels

TABLE: dict[str, Any] = json.loads(unsloth_drift.TABLE.read_text())
RENEW = "look at each, mend agent_env/training/unsloth.py, then `make drift WRITE=1`"


def test_the_pinned_wheels_say_what_the_table_says() -> None:
    if missing := set(unsloth_drift.READ) - wheels().keys():
        pytest.skip(f"NOT CHECKED: no wheel of {', '.join(sorted(missing))} here; `make drift`")
    found = list(drift(TABLE, read()))
    assert not found, f"{RENEW}:\n" + "\n".join(found)


def test_the_table_is_of_the_pinned_versions() -> None:
    locked = unsloth_drift.locked_versions()
    assert {name: TABLE[name]["version"] for name in locked} == locked, RENEW


def test_everything_that_unsloth_replaces_is_spelled_out() -> None:
    trl, unsloth = TABLE["trl"]["defaults"], TABLE["unsloth"]["defaults"]
    replaced = {**unsloth["all"], **unsloth["grpo"], "warmup_steps": 0.1}
    other = {name for name in trl.keys() & replaced.keys() if trl[name] != replaced[name]}
    # Left out it is TRL's "dapo" on both sides.
    assert other - {"loss_type"} <= trl_defaults().keys()
    assert trl_defaults().keys() <= spelled_out({}).keys()


def test_what_is_spelled_out_is_what_the_trl_under_unsloth_has() -> None:
    trl = TABLE["trl"]["defaults"]
    told = {name: value for name, value in trl_defaults().items() if name != "optim"}
    assert told == {name: trl[name] for name in told}
    assert trl["optim"] == "default_optim"  # which transformers takes from torch's version


def test_each_change_is_named_by_its_place() -> None:
    newer = copy.deepcopy(TABLE)
    newer["unsloth"]["version"] = "2026.12.1"
    newer["unsloth"]["caps"]["trl"] = "<=1.16.0"
    newer["unsloth"]["defaults"]["grpo"]["temperature"] = 0.6
    newer["unsloth"]["rules"]["dr_grpo: None keeps scaling"] = False
    assert list(drift(TABLE, newer)) == [
        "unsloth / caps / trl: '!=0.19.0,<=1.15.0,>=0.18.2' -> '<=1.16.0'",
        "unsloth / defaults / grpo / temperature: '(absent)' -> 0.6",
        "unsloth / rules / dr_grpo: None keeps scaling: True -> False",
        "unsloth / version: '2026.10.9' -> '2026.12.1'",
    ]


def put(folder: Path, name: str, files: dict[str, str]) -> None:
    version = unsloth_drift.locked_versions()[name]
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as packed:
        for path, text in files.items():
            packed.writestr(path, text)
        packed.writestr(f"{stem}.dist-info/METADATA", "Requires-Dist: trl<=9; extra == 'all'\n")


def test_wheels_laid_out_otherwise_are_no_silent_agreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsloth_drift, "WHEELS", tmp_path)
    source = f"def {unsloth_drift.PATCH}():\n    replacements = {{'seed': 1}}\n"
    put(tmp_path, "unsloth", {"unsloth/models/rl.py": source})
    put(tmp_path, "unsloth-zoo", {})
    with pytest.raises(LayoutChanged, match="has 1 tables of replaced defaults, not 3"):
        read()
