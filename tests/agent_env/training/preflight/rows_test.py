"""A row that no environment can play is found before the first batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_env.training.preflight.rows import column, row_faults


@dataclass
class Splits:
    """What our own factories tell of themselves."""

    splits: tuple[str, ...]


BOTH = {"grid": Splits(("coarse",)), "mail": Splits(("inbox",))}


def row(environment: str | None, split: str = "coarse") -> dict[str, Any]:
    return {"environment": environment, "split": split}


def faults(rows: Any, factories: Any) -> list[str]:
    return list(row_faults(rows, factories, "train_dataset"))


def test_rows_of_known_environments_are_fine() -> None:
    assert faults([row("grid"), row("mail", "inbox")], BOTH) == []
    assert faults([{"prompt": []}], BOTH["grid"]) == []
    assert faults([{"environment": "anything"}], lambda: None) == []


def test_an_unknown_environment_is_told_with_its_row_and_the_known_ones() -> None:
    (said,) = faults([row("grid"), row("mial"), row("mial")], BOTH)
    assert said.startswith(
        "train_dataset: row 1 is of the environment 'mial', did you mean 'mail'?;"
        " there are: grid, mail (and 1 more such rows)"
    )


def test_a_row_without_an_environment_is_told_where_there_are_several() -> None:
    (said,) = faults([{"prompt": []}], BOTH)
    assert said.startswith("train_dataset: row 0 names no environment; there are: grid, mail")


def test_a_row_of_a_split_that_the_factory_isnt_made_for_is_told() -> None:
    (said,) = faults([row("grid"), row("grid", "fine")], BOTH["grid"])
    assert said.startswith("train_dataset: row 1 is of the split 'fine', the factory of: coarse")
    (said,) = faults([row("grid"), row("mail", "coarse")], BOTH)
    assert said.startswith("train_dataset: row 1 is of the split 'coarse', the factory of: inbox")


def test_a_column_is_read_from_dicts_and_from_what_has_columns() -> None:
    class Columns:
        column_names = ("split",)

        def __len__(self) -> int:
            return 2

        def __getitem__(self, name: str) -> list[str]:
            return {"split": ["a", "b"]}[name]

    assert column(Columns(), "split") == ["a", "b"]
    assert column(Columns(), "environment") == [None, None]
    assert column([{"split": "a"}, {}], "split") == ["a", None]
