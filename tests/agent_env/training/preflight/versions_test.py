"""The table of versions agrees with what the boxes install, and with what Unsloth allows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agent_env.training.preflight.versions import (
    ON_CPU,
    SUPPORTED,
    UNDER_UNSLOTH,
    Supported,
    installed,
    numbers,
    version_faults,
)

ROOT = Path(__file__).parents[4]
WHEELS = json.loads((Path(__file__).parents[1] / "unsloth_wheels.json").read_text())


def locked(stack: str) -> dict[str, str]:
    text = (ROOT / "templates" / "pins" / f"{stack}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.M))


def package(folder: Path, name: str, version: str) -> None:
    """An installed package, as far as its metadata tell; nothing in it can be imported."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.parametrize(
    ("stack", "narrower"), [("cpu", ON_CPU), ("trl", {}), ("unsloth", UNDER_UNSLOTH)]
)
def test_what_a_box_installs_is_supported_and_is_the_pin_that_is_offered(
    stack: str, narrower: dict[str, Supported]
) -> None:
    pins = locked(stack)
    table = {**SUPPORTED, **narrower}
    ours = pins.keys() & table.keys()
    assert {"trl", "transformers"} <= ours
    for name in ours:
        assert table[name].holds(pins[name]), f"{name} {pins[name]}"
        if name != "trl" or narrower or stack == "trl":
            assert table[name].pin == pins[name]


def test_the_newest_that_is_supported_under_unsloth_is_what_its_wheel_allows() -> None:
    caps = WHEELS["unsloth"]["caps"]
    for name, supported in UNDER_UNSLOTH.items():
        cap = re.search(r"<=([\d.]+)", caps[name])
        assert cap
        assert supported.holds(cap[1])
        # The patch after it is not.
        *front, last = numbers(cap[1])
        assert not supported.holds(".".join(map(str, [*front, last + 1])))


@pytest.mark.parametrize(
    ("version", "holds"),
    [("1.14.9", False), ("1.15.0", True), ("1.16.9+cu130", True), ("1.17.0.dev0", False)],
)
def test_a_range_has_its_first_version_and_ends_before_its_last(version: str, holds: bool) -> None:
    assert SUPPORTED["trl"].holds(version) is holds


def test_a_wrong_version_is_told_with_the_range_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, "trl", "1.15.0")
    package(tmp_path, "transformers", "5.17.0")
    assert list(version_faults([], cuda=True)) == []
    assert list(version_faults([], cuda=False)) == [
        "trl: 1.15.0 is installed, supported without a GPU is >=1.16,<1.17:"
        " pip install 'trl==1.16.0', or on a box `pins: cpu`"
    ]
    (said,) = version_faults(["unsloth"], cuda=True)
    assert said == (
        "unsloth: isn't installed, supported is >=2026.10,<2026.11:"
        " pip install 'unsloth==2026.10.9', or on a box `pins: unsloth`"
    )


def test_unsloth_narrows_the_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, version in [("trl", "1.16.0"), ("transformers", "5.17.0")]:
        package(tmp_path, name, version)
    package(tmp_path, "unsloth", "2026.10.9")
    (said,) = version_faults(["unsloth"], cuda=True)
    assert said.startswith("trl: 1.16.0 is installed, supported with unsloth is >=1.15,<1.15.1:")


def test_the_pins_that_are_named_have_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    for name in SUPPORTED:
        for cuda in (False, True):
            said = list(version_faults([name], cuda=cuda))
            (pins,) = {line.rpartition("pins: ")[2].rstrip("`") for line in said}
            assert name in locked(pins), said


def test_what_isnt_installed_has_no_version() -> None:
    assert installed("no-such-package-here") is None
