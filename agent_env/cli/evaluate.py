"""`agent-env eval`: play a policy on a split, write every attempt down, sum up."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_env.cli._told import finite, told
from agent_env.errors import AgentEnvError, PolicyError, ResultsError, TaskNotFound

if TYPE_CHECKING:
    from agent_env.client import AgentEnv
    from agent_env.evaluation.history import Policy
    from agent_env.evaluation.measure import Measurement, Request
    from agent_env.evaluation.results import Header, ResultsFile, Row

INCOMPLETE = 1
"""The eval ran, and not every attempt has a score."""
INTERRUPTED = 130


def evaluate(
    target: Annotated[str, typer.Argument(help="A bundle, or the http address of a server.")],
    policy: Annotated[
        str,
        typer.Option(
            help="expert, random:SEED, scripted:MODULE:FUNCTION, openai:MODEL, transformers:PATH"
        ),
    ],
    split: Annotated[
        str | None, typer.Option(help="The split to play; needed, and listed without it.")
    ] = None,
    attempts: Annotated[int, typer.Option(min=1, help="Attempts at each task.")] = 1,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many tasks of the split.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Sessions at one time.")] = 8,
    out: Annotated[
        Path | None, typer.Option(help="The results file; one that is there is gone on with.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds every attempt.")] = 0,
    reward: Annotated[
        str | None, typer.Option(help="The score that is the reward; default: the bundle's own.")
    ] = None,
    threshold: Annotated[float, typer.Option(help="The reward from which it is a pass.")] = 1.0,
    max_calls: Annotated[int, typer.Option(min=1, help="Tool calls in an episode.")] = 64,
    base_url: Annotated[
        str | None, typer.Option(help="openai: the endpoint's address, up to its /v1.")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option(help="openai: the environment variable that holds the key.")
    ] = None,
    sampling: Annotated[
        str, typer.Option(help="A model's policy: what it is told as well, a JSON object.")
    ] = "{}",
) -> None:
    """Measure a policy on a bundle; killed, the same command goes on where it stopped.

    Exits with 0 when every attempt has a score, 1 when some have none, 2 for bad input.
    """
    # What plays loads in 0.4 s: only the command that plays pays for it.
    from agent_env.evaluation.measure import Request, splits_of  # noqa: PLC0415

    with told():
        if split is None:
            raise TaskNotFound(f"--split is missing; {target} has: {', '.join(splits_of(target))}")
        finite("--threshold", threshold)
        request = Request(
            target=target,
            split=split,
            policy=policy,
            attempts=attempts,
            tasks=tasks,
            concurrency=concurrency,
            seed=seed,
            reward=reward,
            max_calls=max_calls,
            sampling=_object(sampling),
        )
        complete = _run(request, out, threshold, base_url=base_url, key=_key(key_env))
    raise typer.Exit(0 if complete else INCOMPLETE)


def _run(
    request: Request, out: Path | None, threshold: float, *, base_url: str | None, key: str | None
) -> bool:
    """Settle, play, print; True when every attempt has a score."""
    from agent_env.evaluation.measure import open_env, own_bundle, settle  # noqa: PLC0415
    from agent_env.evaluation.policies import Means, load_policy  # noqa: PLC0415
    from agent_env.evaluation.results import ResultsFile, read_results  # noqa: PLC0415
    from agent_env.evaluation.summary import table  # noqa: PLC0415

    with open_env(request) as env:
        measured = settle(request, env)
        means = Means(
            bundle=lambda: own_bundle(request, measured.header),
            base_url=base_url,
            key=key,
            sampling=request.sampling,
        )
        policy = load_policy(request.policy, means)
        path = out or Path(_file_name(measured.header))
        with ResultsFile(path, measured.header) as results:
            _play(request, measured, policy, env, results)
    header, rows = read_results(path)
    typer.echo(table(header, rows, threshold=threshold), nl=False)
    return sum(row.reward is not None for row in rows) == header.tasks * header.attempts


def _play(
    request: Request,
    measured: Measurement,
    policy: Policy,
    env: AgentEnv,
    results: ResultsFile,
) -> None:
    from agent_env.evaluation.run import missing, play_all  # noqa: PLC0415

    todo = missing(measured.tasks, request.attempts, request.seed, results.rows)
    total = len(measured.tasks) * request.attempts
    progress = _Progress(results.path, total, total - len(todo))
    try:
        for row in play_all(
            todo,
            env.session,
            policy,
            tools=measured.tools,
            max_calls=request.max_calls,
            concurrency=request.concurrency,
        ):
            results.append(row)
            progress.saw(row)
    except ResultsError as error:
        _stopped(error, INCOMPLETE)
    except KeyboardInterrupt:
        _stopped("interrupted; the same command goes on", INTERRUPTED)


def _stopped(why: AgentEnvError | str, code: int) -> None:
    typer.echo(f"agent-env: {why}", err=True)
    raise typer.Exit(code)


class _Progress:
    """A line on stderr now and then: each tenth, and always on a terminal."""

    def __init__(self, path: Path, total: int, done: int) -> None:
        self._total, self._done, self._unscored = total, done, 0
        self._live = sys.stderr.isatty()
        there = f", {done} of {total} are there already" if done else ""
        typer.echo(f"writing {path}{there}", err=True)

    def saw(self, row: Row) -> None:
        before, self._done = self._done, self._done + 1
        self._unscored += row.reward is None
        tenth = before * 10 // self._total != self._done * 10 // self._total
        last = self._done == self._total
        if not (self._live or tenth):
            return
        lost = f", {self._unscored} unscored" if self._unscored else ""
        start = "\r" if self._live else ""
        typer.echo(f"{start}{self._done} of {self._total}{lost}", err=True, nl=not self._live)
        if self._live and last:
            typer.echo(err=True)


def _file_name(header: Header) -> str:
    plain = re.sub(r"[^\w.-]+", "-", f"{header.env}-{header.split}-{header.policy}")
    return f"{plain.strip('-')}.jsonl"


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_constant=_no_json)
    except ValueError as error:
        raise PolicyError(f"--sampling is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise PolicyError('--sampling is a JSON object, such as {"temperature": 0.7}')
    return found


def _no_json(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    if not os.environ.get(name):
        raise PolicyError(
            f"--key-env {name}: there is no such environment variable, or it's empty"
        )
    return os.environ[name]
