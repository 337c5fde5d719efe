"""`gpurun aws policy`: JSON that IAM takes, and nothing else on its standard output."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from orchestrator.cli import app

ACCOUNT = "--account=123456789012"
SMOKE = Path(__file__).resolve().parents[2] / "runbooks" / "smoke.yaml"


def said(*args: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["aws", "policy", *args])
    assert result.exit_code == code, result.output
    return result.stdout


def test_each_part_is_one_document() -> None:
    parts = [json.loads(said(ACCOUNT, "--part", part)) for part in ("1", "2")]
    assert parts == json.loads(said(ACCOUNT, "--json"))
    assert all(part["Version"] == "2012-10-17" for part in parts)
    assert "123456789012" in said(ACCOUNT)


def test_a_runbook_and_the_reaper_get_less() -> None:
    whole = len(said(ACCOUNT))
    assert len(said(str(SMOKE), ACCOUNT)) < whole
    reaper = json.loads(said(ACCOUNT, "--for", "reaper", "--json"))
    assert "RunInstances" not in json.dumps(reaper)


def test_what_is_no_account_and_no_part_is_refused() -> None:
    said("--account=12", code=2)
    said(ACCOUNT, "--part", "3", code=2)
