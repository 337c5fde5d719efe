"""Makes a folder with a working bundle: `example`, under another name.

The example is code of this package like any other, typed and tested, so that what is copied works.
"""

from __future__ import annotations

import keyword
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from agent_env.bundle import installed
from agent_env.errors import BundleError

EXAMPLE = Path(__file__).with_name("example")
FILES = {"__init__.py": "__init__.py", "rules.py": "rules.py", "example_test.py": "{name}_test.py"}

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def make(name: str, parent: Path) -> list[Path]:
    """Write the bundle into `parent/name`; returns its files.

    Raises BundleError for a name that can't be one or is a module's, and where something is
    there already.
    """
    folder = parent / name
    _check(name, folder)
    try:
        folder.mkdir()
    except FileExistsError:
        raise BundleError(f"{folder} is there already; choose another name") from None
    except OSError as error:
        raise BundleError(f"{folder} can't be made: {error.strerror}") from error
    try:
        return [_write(folder, name, file, made) for file, made in FILES.items()]
    except BaseException:
        shutil.rmtree(folder)
        raise


def _check(name: str, folder: Path) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise BundleError(
            f"{name!r} can't be a bundle's name: at most 40 small letters, digits and _, a letter"
            " first, and no word of Python's own; such as word_game"
        )
    if name in installed() or find_spec(f"agent_env.bundles.{name}"):
        raise BundleError(f"{name!r} is an installed bundle; choose another name")
    if name in sys.stdlib_module_names or (not folder.exists() and find_spec(name)):
        raise BundleError(
            f"{name!r} is a module that Python can import: a folder of that name would hide it, or"
            " be hidden by it; choose another name"
        )


def _write(folder: Path, name: str, file: str, made: str) -> Path:
    text = (EXAMPLE / file).read_text(encoding="utf-8")
    title = "".join(part.capitalize() for part in name.split("_"))
    path = folder / made.format(name=name)
    path.write_text(text.replace("starter", name).replace("Starter", title), encoding="utf-8")
    return path
