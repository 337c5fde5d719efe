"""What every test shares: which files are collected here, and an environment of its own."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PEERS = {
    mark: importlib.util.find_spec(mark) is not None
    for mark in ("openenv", "verl", "skyrl", "trl")
}
"""What a file with the mark of that name needs."""
HAS_MOTO = importlib.util.find_spec("moto") is not None
SLOW_READERS = (
    ("botocore.session", "create_loader"),
    ("botocore.parsers", "DEFAULT_TIMESTAMP_PARSER"),
    ("moto.core.responses", "method_names_from_class"),
)
"""Functions that answer the same each time, for which tests ask again and again."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files that this environment can't import.

    A file that needs TRL says `pytestmark = pytest.mark.trl`: it is collected where TRL is; the
    same with `openenv`, `verl` and `skyrl`. In the environments made for those, which have none
    of the orchestrator's needs, only they are.
    """
    if collection_path.is_dir():
        tests = list(collection_path.rglob("*_test.py"))
        return None if not tests or any(map(_is_collected, tests)) else True
    if collection_path.name.endswith("_test.py"):
        return None if _is_collected(collection_path) else True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: what is left for the end is short, and no core waits."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def _is_collected(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    for mark, there in PEERS.items():
        if f"mark.{mark}" in text:
            return there
    return HAS_MOTO


@pytest.fixture(scope="session", autouse=True)
def _models_are_read_once() -> Iterator[None]:
    """Of AWS's services, as botocore has them: to read one takes longer than many a test."""
    if not HAS_MOTO:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for module, function in SLOW_READERS:
            found = importlib.import_module(module)
            patch.setattr(found, function, cache(getattr(found, function)))
        yield


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads the person's own state, region or credentials, or asks a real service."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPURUN_HOME", str(tmp_path / "gpurun-home"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-aws-credentials"))


@pytest.fixture(autouse=True)
def _as_loud_as_before() -> Iterator[None]:
    """Simulated lives silence the product's log, as they end badly by design."""
    loggers = [logging.getLogger(name) for name in ("gpurun", "orchestrator")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
