"""A Lambda package of exactly the modules of ours that one of them imports, found by reading them.

So it can't go stale, and a module that drags in a library which Lambda lacks is seen in a test.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_OURS = "orchestrator"
# The same bytes for the same sources: what is installed is compared by its hash.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16


def zip_of(module: str) -> bytes:
    """The package: the module and what it imports of ours, each with its package's `__init__`."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as package:
        for name in sorted(files_of(module)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr, entry.compress_type = _READABLE, zipfile.ZIP_DEFLATED
            package.writestr(entry, (_ROOT / name).read_bytes())
    return out.getvalue()


def files_of(module: str) -> set[str]:
    """Paths from the repository's root, in the order of nothing."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        for path in _paths(waiting.pop()):
            name = str(path.relative_to(_ROOT))
            if name not in found:
                found.add(name)
                waiting += _imported(ast.parse(path.read_text("utf-8")))
    return found


def _paths(module: str) -> Iterator[Path]:
    """The module's file, if it is one, and the packages that it lies in."""
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        here = _ROOT.joinpath(*parts[:depth])
        for path in (here / "__init__.py", here.with_suffix(".py")):
            if path.is_file():
                yield path


def _imported(tree: ast.AST) -> Iterator[str]:
    """Modules of ours, and names in them that may be modules; not what only types need."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if _is_ours(name.name))
        elif isinstance(node, ast.ImportFrom) and _is_ours(node.module or ""):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)
        else:
            yield from _imported(node)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == _OURS
