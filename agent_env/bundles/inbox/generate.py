"""Writes the frozen stories: `python -m agent_env.bundles.inbox.generate [FOLDER]`.

A story depends only on its split and index. Gzip carries no time, so that the same stories make
the same bytes.
"""

import gzip
import random
import sys
from pathlib import Path

from agent_env.bundles.inbox.frozen import FOLDER, SPLITS
from agent_env.bundles.inbox.story import Story
from agent_env.bundles.inbox.templates import TEMPLATES

SEED = "inbox-1"


def story(split: str, index: int) -> Story:
    """The story of that place; its kind is the index modulo the number of kinds."""
    rng = random.Random(f"{SEED}/{split}/{index}")  # noqa: S311 - a game's dice
    return TEMPLATES[index % len(TEMPLATES)](rng)


def write(folder: Path, splits: dict[str, int]) -> None:
    """One file a split, replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in splits.items():
        text = "".join(f"{story(split, index).model_dump_json()}\n" for index in range(count))
        packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
        (folder / f"{split}.jsonl.gz").write_bytes(packed)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER, SPLITS)
