"""What is to be reported to is there, or is told to be missing before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_env.training.config import ConfigError, GrpoConfig, parse_config
from agent_env.training.reporting import check_reporting


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed wandb that nobody has logged in."""
    (tmp_path / "wandb.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    for name in ("WANDB_MODE", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)


def fault(*names: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check_reporting(parse_config(GrpoConfig, {"report_to": list(names)}))
    return str(caught.value)


def test_a_missing_package_is_told_by_name() -> None:
    assert fault("trackio").startswith("config.report_to: the package trackio isn't installed")


@pytest.mark.usefixtures("wandb")
def test_wandb_without_a_token_is_told_the_secrets_name() -> None:
    assert "WANDB_API_KEY" in fault("wandb")


@pytest.mark.usefixtures("wandb")
def test_a_netrc_counts_only_if_it_names_wandbs_server(tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine github.com login me password p\n")
    assert "WANDB_API_KEY" in fault("wandb")
    netrc.write_text("machine api.wandb.ai\n  login user\n  password p\n")
    check_reporting(parse_config(GrpoConfig, {"report_to": ["wandb"]}))


@pytest.mark.usefixtures("wandb")
@pytest.mark.parametrize(("name", "value"), [("WANDB_API_KEY", "k"), ("WANDB_MODE", "offline")])
def test_wandb_with_a_token_or_without_a_network_is_fine(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    check_reporting(parse_config(GrpoConfig, {"report_to": ["wandb"]}))
