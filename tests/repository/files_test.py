"""What must never stand in the repository."""

from __future__ import annotations

import pytest

from .tree import ROOT, kept_files, lines_matching

MAX_BYTES = 1_000_000


def dotted(*parts: str) -> str:
    """A host as a regular expression, spelled apart so that this file doesn't hold it."""
    return r"\.".join(parts)


REGISTRIES = [
    dotted("pypi", "org"),
    dotted("pythonhosted", "org"),
    dotted("registry", "npmjs", "org"),
    dotted("deb", "debian", "org"),
    dotted("download", "pytorch", "org"),
]


@pytest.mark.parametrize("host", REGISTRIES)
def test_no_file_names_a_package_registry(host: str) -> None:
    assert lines_matching(host) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    roots = ["/" + "work/", "/" + "root/", "/" + "farm/", "/" + "home/[a-z]"]
    in_boxes = "/home/ubuntu"
    found = [line for line in lines_matching("|".join(roots)) if in_boxes not in line]
    assert found == []


def test_no_file_is_heavier_than_a_megabyte() -> None:
    heavy = [
        str(path.relative_to(ROOT)) for path in kept_files() if path.stat().st_size > MAX_BYTES
    ]
    assert heavy == []


def test_no_key_is_committed() -> None:
    private = "BEGIN (OPENSSH |RSA |EC )?" + "PRIVATE KEY"
    access = "AKIA" + "(?!IOSFODNN7EXAMPLE)[0-9A-Z]{16}"
    assert lines_matching(f"{private}|{access}") == []
