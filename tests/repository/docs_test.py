"""What the documentation says exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator import errors

from .surface import commands, targets
from .tree import ROOT, kept_files

DOCS = sorted(path for path in kept_files() if path.suffix == ".md")
ROW = re.compile(r"^\| (\d+) \| (\w*) \|", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def tree_of(error: type[errors.GpurunError]) -> list[type[errors.GpurunError]]:
    """The class and everything below it."""
    return [error, *(leaf for child in error.__subclasses__() for leaf in tree_of(child))]


def test_the_documented_exit_codes_are_those_of_the_error_classes() -> None:
    table = (ROOT / "docs" / "exit-codes.md").read_text()
    documented = {name: int(code) for code, name in ROW.findall(table) if name}
    assert documented == {error.__name__: error.exit_code for error in tree_of(errors.GpurunError)}


def test_no_two_errors_share_an_exit_code() -> None:
    codes = [error.exit_code for error in tree_of(errors.GpurunError)]
    assert sorted(codes) == sorted(set(codes))


def test_every_command_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert {name for name in commands() if name not in readme} == set()


@pytest.mark.parametrize("page", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_names_only_commands_and_targets_that_exist(page: Path) -> None:
    text = page.read_text()
    named = set(
        re.findall(
            r"(?:`|^\$ |&& )((?:gpurun (?:aws|cloud)|gpurun|agent-env) [a-z]+(?:-[a-z]+)*)",
            text,
            re.MULTILINE,
        )
    )
    made = set(re.findall(r"(?:`|^\$ |&& |; )make ([a-z][a-z-]*)", text, re.MULTILINE))
    assert named - commands() == set()
    assert made - targets() == set()


@pytest.mark.parametrize("page", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_links_to_files_that_exist(page: Path) -> None:
    links = LINK.findall(page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_a_page_names_only_files_that_exist() -> None:
    named = re.compile(
        r"`((?:orchestrator|agent_env|runbooks|templates|requirements|docs|tests)/[\w./-]+)`"
    )
    missing = [
        f"{page.name}: {name}"
        for page in DOCS
        for name in named.findall(page.read_text())
        if not (ROOT / name).exists()
    ]
    assert missing == []


def test_the_index_has_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    pages = {page for page in DOCS if index.parent in page.parents} - {index}
    assert sorted(page.name for page in pages - named) == []
