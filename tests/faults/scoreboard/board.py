"""The board: every scene under every policy, as a table, as JSON, and on docs/scoreboard.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.faults.scoreboard.lives import TITLES, Cell, live
from tests.faults.scoreboard.scenes import SCENES

PAGE = Path(__file__).parents[3] / "docs" / "scoreboard.md"
KEPT, BROKEN = "✔", "✘"
Board = Mapping[tuple[str, str], Cell]
"""By scene and policy."""
_BLOCK = re.compile(r"(<!-- (\w+): make scoreboard -->\n).*?(<!-- /\2 -->)", re.DOTALL)


def play(workers: int) -> Board:
    """All of it, on so many cores."""
    pairs = [(scene.name, title) for scene in SCENES for title in TITLES]
    if workers == 1:
        return {pair: _cell(pair) for pair in pairs}
    with ProcessPoolExecutor(workers) as pool:
        return dict(zip(pairs, pool.map(_cell, pairs), strict=True))


def _cell(pair: tuple[str, str]) -> Cell:
    name, title = pair
    return live(title, next(scene for scene in SCENES if scene.name == name))


def table(board: Board) -> str:
    """In Markdown, and aligned, so that a terminal shows it as well."""
    rows = [["", *TITLES], [""] * (len(TITLES) + 1)]
    for scene in SCENES:
        rows.append([scene.name, *(text(board[scene.name, title]) for title in TITLES)])
    rows.append(["**promises kept**", *(_score(board, title) for title in TITLES)])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    rows[1] = ["-" * width for width in widths]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        + " |"
        for row in rows
    )


def text(cell: Cell) -> str:
    """`✔ $2.58 ✔ ✔`: money, leak, results; each broken one with its number."""
    leak = KEPT if cell.leak else f"{BROKEN} bills on"
    results = KEPT if cell.results else f"{BROKEN} {cell.lost_min:.0f} min"
    return f"{KEPT if cell.money else BROKEN} ${cell.spent_usd:.2f} {leak} {results}"


def as_json(board: Board) -> list[dict[str, object]]:
    """One entry per cell."""
    return [
        {
            "scene": scene,
            "policy": title,
            "spent_usd": str(cell.spent_usd),
            "cap_usd": str(cell.cap_usd),
            "still_billing": list(cell.bills),
            "lost_minutes": round(cell.lost_min, 2),
            "kept": {"money": cell.money, "leak": cell.leak, "results": cell.results},
        }
        for (scene, title), cell in board.items()
    ]


def scenes() -> str:
    """What happens in each, for the page."""
    return "\n".join(f"- **{scene.name}**: {scene.what}." for scene in SCENES)


def renewed(page: str, board: Board) -> str:
    """The page with its blocks as they are now.

    Raises ValueError if one of them is missing.
    """
    found = {match[2] for match in _BLOCK.finditer(page)}
    if found != {"scoreboard", "scenes"}:
        raise ValueError(f"the page has the blocks {sorted(found)}")
    blocks = {"scoreboard": table(board), "scenes": scenes()}
    return _BLOCK.sub(lambda match: f"{match[1]}{blocks[match[2]]}\n{match[3]}", page)


def documented(page: str) -> dict[tuple[str, str], str]:
    """The page's cells, by scene and policy."""
    block = next(match[0] for match in _BLOCK.finditer(page) if match[2] == "scoreboard")
    lines = [line for line in block.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    titles = rows[0][1:]
    return {
        (row[0], title): cell
        for row in rows[2:]
        if not row[0].startswith("**")
        for title, cell in zip(titles, row[1:], strict=True)
    }


def _score(board: Board, title: str) -> str:
    cells = [board[scene.name, title] for scene in SCENES]
    kept = sum(cell.money + cell.leak + cell.results for cell in cells)
    return f"{kept} of {3 * len(cells)}"
