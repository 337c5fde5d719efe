"""Ours keeps its promises in every scene, and the page says of each policy what really happens."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.faults.scoreboard import board
from tests.faults.scoreboard.lives import OURS, TITLES, Cell, live, saved_step
from tests.faults.scoreboard.scenes import SCENES
from tests.faults.world import Enforcers

PAGE = board.PAGE.read_text(encoding="utf-8")
SCENE = {scene.name: scene for scene in SCENES}


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("title", TITLES)
def test_the_page_shows_what_happens_to_a_policy(title: str) -> None:
    said = {
        scene: text for (scene, policy), text in board.documented(PAGE).items() if policy == title
    }
    played = {scene.name: live(title, scene) for scene in SCENES}
    assert {scene: marks(text) for scene, text in said.items()} == {
        scene: marks(board.text(cell)) for scene, cell in played.items()
    }
    for scene, cell in played.items():
        assert Decimal(said[scene].split("$")[1].split()[0]) == pytest.approx(
            cell.spent_usd, rel=Decimal("0.1")
        )
        if title == OURS:
            assert (cell.money, cell.leak, cell.results) == (True, True, True), scene


def marks(text: str) -> str:
    return "".join(char for char in text if char in board.KEPT + board.BROKEN)


def test_every_policy_keeps_all_promises_when_all_is_well() -> None:
    said = board.documented(PAGE)
    assert {marks(said["all well", title]) for title in TITLES} == {"✔✔✔"}


def test_the_page_tells_the_scenes_that_are_played() -> None:
    assert board.scenes() in PAGE


def test_a_cell_is_the_same_each_time() -> None:
    scene = SCENE["machine dies"]
    assert live(OURS, scene) == live(OURS, scene)


def test_the_board_would_also_tell_of_ours() -> None:
    cell = live(OURS, SCENE["ending refused"], Enforcers(box=False))
    assert (cell.money, cell.leak) == (False, False)


def test_a_cell_says_which_promise_broke_and_by_how_much() -> None:
    good = Cell(Decimal("2.5"), Decimal(4), (), 0.0)
    bad = Cell(Decimal("36.4"), Decimal(4), ("instance", "volume"), 23.0)
    assert board.text(good) == "✔ $2.50 ✔ ✔"
    assert board.text(bad) == "✘ $36.40 ✘ bills on ✘ 23 min"


def test_state_counts_as_saved_only_when_it_is_whole() -> None:
    weights, marker = (
        ("a/adapter", b"weights train 6"),
        ("a/trainer_state.json", b'{"global_step": 6}'),
    )
    assert saved_step(iter([weights])) == 0
    assert saved_step(iter([weights, marker])) == 6
    assert saved_step(iter([("out/latest", b"latest 9"), ("out/latest", b"latest 3 whole")])) == 3


def test_a_page_without_its_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="has the blocks"):
        board.renewed("nothing here", {})
