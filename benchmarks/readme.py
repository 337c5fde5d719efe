"""`make readme`: write the README's tables anew from what the command prints.

A block stands between `<!-- name: … -->` and `<!-- /name -->`; only what is between changes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from benchmarks.startup import GPURUN, ROOT, RUNBOOK

README = ROOT / "README.md"


def main() -> int:
    """The plan always; the result table of `--run`, if one is given."""
    parser = argparse.ArgumentParser(prog="make readme", description=__doc__)
    parser.add_argument(
        "--run", default="", help="run id on the local cloud, for the result table"
    )
    run_id: str = parser.parse_args().run
    text = README.read_text(encoding="utf-8")
    text = replaced(text, "plan", _printed("plan", str(RUNBOOK.relative_to(ROOT))))
    if run_id:
        text = replaced(text, "result", _printed("status", run_id))
    README.write_text(text, encoding="utf-8")
    return 0


def replaced(text: str, name: str, block: str) -> str:
    """The text with the named block's content replaced by a fenced `block`.

    Raises:
        ValueError: the text has no such block, or more than one.
    """
    marked = re.compile(rf"(<!-- {name}\b[^\n]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
    changed, count = marked.subn(lambda found: _fenced(found, block), text)
    if count != 1:
        raise ValueError(f"the README has {count} blocks named {name}")
    return changed


def _fenced(found: re.Match[str], block: str) -> str:
    return f"{found[1]}```text\n{block}\n```\n{found[2]}"


def _printed(*arguments: str) -> str:
    done = subprocess.run(
        [str(GPURUN), *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


if __name__ == "__main__":
    sys.exit(main())
