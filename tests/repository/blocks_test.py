"""Every code block of the README and of docs/ is run, or checked as far as it can be here."""

from __future__ import annotations

import ast
import json
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from . import shown_runbook, typed
from .blocks import DATA, KINDS, NEEDS, NEVER_RUN, PYTHON, SHELL, SHOWN, Block, blocks, read

BLOCKS = blocks()
TYPED = ("$ ", "make ", "gpurun ", "agent-env ", "python -m ", "python3 -m ")


def of(*kinds: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind in kinds]


def kind_fault(block: Block) -> str | None:
    """Why nobody knows what to do with the block."""
    if block.kind not in KINDS:
        return f"say what it is, not {block.info!r}: one of {', '.join(sorted(KINDS))}"
    if unknown := block.marks - NEEDS.keys():
        return f"unknown mark {', '.join(unknown)}; there are: {', '.join(NEEDS)}"
    return None


def test_every_block_says_what_it_is() -> None:
    faults = [f"{block}: {fault}" for block in BLOCKS if (fault := kind_fault(block))]
    assert faults == []


@pytest.mark.parametrize("info", ["", "python3", "text vrl", "sh gpu other new"])
def test_a_block_that_nobody_would_check_is_found(info: str) -> None:
    (block,) = read(f"a\n\n```{info}\nb\n```\n", "page.md")
    assert (str(block), block.text) == ("page.md:3", "b\n")
    assert kind_fault(block)


def test_a_block_that_nothing_closes_is_found() -> None:
    with pytest.raises(ValueError, match=r"page\.md:2"):
        list(read("a\n```sh\nls\n", "page.md"))


def test_what_is_only_shown_holds_nothing_to_type() -> None:
    typed_in = [
        f"{block}: `{line}` is a command: make the block `console` or `sh`"
        for block in of(SHOWN)
        for line in block.text.splitlines()
        if line.startswith(TYPED)
    ]
    assert typed_in == []


@pytest.mark.parametrize("block", of(*SHELL), ids=str)
def test_a_command_line_names_what_exists(block: Block) -> None:
    found = list(typed.lines(block))
    assert found, f"{block}: no command in it; begin its lines with `$ `, or make it `text`"
    faults = [f"{block}: {line}: {fault}" for line in found if (fault := typed.fault(line))]
    assert faults == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("make gpu-prove", "no target gpu-prove"),
        ("make gpu-proof CAB=40", "no variable CAB"),
        ("gpurun upp runbooks/smoke.yaml", "no command 'upp'"),
        ("gpurun up runbooks/smoke.yaml --cop 3", "--cop"),
        ("ls && .venv/bin/agent-env check", "Missing"),
        ("SEED=3 agent-env new mine more", "unexpected"),
        ("python -m agent_env.training.grpoo job.json > log", "no module"),
        ("frobnicate --all", "no program"),
    ],
)
def test_a_command_line_that_nobody_can_type_is_found(line: str, wrong: str) -> None:
    assert wrong in str(typed.fault(line))


@pytest.mark.parametrize("block", of(*DATA), ids=str)
def test_data_parses_and_a_runbook_plans(block: Block, tmp_path: Path) -> None:
    if block.kind == "yaml" and "other" not in block.marks:
        assert shown_runbook.fault(block.text, tmp_path) is None, str(block)
    elif block.kind == "json":
        json.loads(block.text)
    elif block.kind == "jsonl":
        [json.loads(line) for line in block.text.splitlines()]
    elif block.kind == "toml":
        tomllib.loads(block.text)


def test_a_runbook_that_nobody_can_run_is_found(tmp_path: Path) -> None:
    job = "program: grpo\nconfig: {stepps: 3}\n"
    assert "stepps" in str(shown_runbook.fault(job, tmp_path))
    assert shown_runbook.fault(job.replace("pp", "p"), tmp_path) is None
    assert "program" in str(shown_runbook.fault("jobs: {a: {box: one, hours: 1m}}\n", tmp_path))


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.marks & NEVER_RUN], ids=str)
def test_what_can_only_run_elsewhere_is_checked_and_counted(block: Block) -> None:
    """The summary of skips is the list of what the docs show and nothing here has run."""
    if block.kind == PYTHON:
        assert missing_names(block) == []
    needs = ", ".join(NEEDS[mark] for mark in sorted(block.marks))
    pytest.skip(f"{block}: {needs}; checked, not run")


def missing_names(block: Block) -> list[str]:
    """What the block imports of ours and isn't there. Raises SyntaxError."""
    found = ast.walk(ast.parse(block.at_its_line, block.page))
    imports = [node for node in found if isinstance(node, ast.ImportFrom) and node.module]
    return [
        f"{block.page}:{node.lineno}: {node.module}.{alias.name}"
        for node in imports
        for alias in node.names
        if str(node.module).startswith("agent_env") and not _has(str(node.module), alias.name)
    ]


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        # Something of a trainer's: the module is ours and can only be looked at.
        if str(missing.name).startswith("agent_env"):
            return False
        path = Path(__file__).parents[2] / (module.replace(".", "/") + ".py")
        return name in path.read_text("utf-8")


def test_an_import_of_what_isnt_there_is_found() -> None:
    (block,) = read("```python gpu\nfrom agent_env import AgentEnv, Agent\n```\n", "page.md")
    assert missing_names(block) == ["page.md:2: agent_env.Agent"]
