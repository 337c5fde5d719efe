"""`agent-env compare`, `replay` and `export`: what results files are for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agent_env.bundle import load_bundle
from agent_env.cli._told import finite, told
from agent_env.errors import ResultsError, TaskNotFound

if TYPE_CHECKING:
    from agent_env.evaluation.results import Header, Row

ResultsPath = Annotated[Path, typer.Argument(help="A results file of agent-env eval.")]


def compare(first: ResultsPath, second: ResultsPath) -> None:
    """Say how the second results differ from the first, attempt by attempt."""
    from agent_env.evaluation.comparison import compare as compared  # noqa: PLC0415
    from agent_env.evaluation.results import read_results  # noqa: PLC0415

    with told():
        typer.echo(compared(read_results(first), read_results(second)), nl=False)


def replay(
    file: ResultsPath,
    task: Annotated[
        str | None, typer.Argument(help="A task's id or index; without it all are listed.")
    ] = None,
) -> None:
    """Show what was said and done in the attempts at a task."""
    from agent_env.evaluation.results import read_results  # noqa: PLC0415
    from agent_env.evaluation.transcript import overview, transcripts  # noqa: PLC0415

    with told():
        _, rows = read_results(file)
        typer.echo(overview(rows) if task is None else transcripts(rows, task), nl=False)


def export(
    source: Annotated[str, typer.Argument(help="A results file, or a bundle with an expert.")],
    min_reward: Annotated[float, typer.Option(help="The least reward of what is exported.")],
    form: Annotated[
        Literal["sft"], typer.Option("--format", help="sft: messages and tools.")
    ] = "sft",
    split: Annotated[
        str | None, typer.Option(help="A bundle's split, which its expert plays.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; default: stdout.")] = None,
) -> None:
    """Write good attempts as data to fine-tune on, from a results file or a bundle's expert."""
    from agent_env.evaluation.sft import as_lines, check_out, examples  # noqa: PLC0415

    write = {"sft": examples}[form]
    with told():
        finite("--min-reward", min_reward)
        if out is not None:
            check_out(out, Path(source))
        header, rows = _read(source, split)
        found = write(header, rows, min_reward)
        lost = sum(row.reward is None for row in rows)
        unscored = f", {lost} of them unscored" if lost else ""
        typer.echo(f"{len(found)} of {len(rows)} attempts{unscored}", err=True)
        if not found:
            raise ResultsError(f"no attempt has a reward of {min_reward:g} or more")
        _put(as_lines(found), out)


def _read(source: str, split: str | None) -> tuple[Header, list[Row]]:
    from agent_env.evaluation.demonstrations import demonstrate  # noqa: PLC0415
    from agent_env.evaluation.results import read_results  # noqa: PLC0415

    if _is_file(source):
        if split is not None:
            raise ResultsError("--split is for a bundle: a results file is of one split")
        return read_results(Path(source))
    if split is None and source.endswith(".jsonl"):
        return read_results(Path(source))
    if split is None:
        known = ", ".join(load_bundle(source).splits)
        raise TaskNotFound(f"{source} is no file; of the bundle give --split: {known}")
    return demonstrate(source, split)


def _is_file(source: str) -> bool:
    try:
        return Path(source).is_file()
    except OSError:  # too long for a path
        return False


def _put(text: str, out: Path | None) -> None:
    """All of it or nothing: a file that is there is replaced in one step."""
    if out is None:
        typer.echo(text, nl=False)
        return
    beside = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        beside.write_text(text)
        beside.replace(out)
    except OSError as error:
        raise ResultsError(f"{out} can't be written: {error.strerror}") from error
