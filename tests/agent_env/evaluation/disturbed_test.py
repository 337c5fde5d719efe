"""An eval on a server that is killed is, letter by letter, the eval on one that isn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.evaluation.policies.randomly import Randomly
from agent_env.evaluation.results import Row, comparable
from agent_env.evaluation.run import missing, play_all

CASES = [("gridsim", "eval"), ("gridsim", "coarse-eval"), ("inbox", "eval")]


def evaluate(server: LocalServer, split: str, *, kills: int) -> list[Row]:
    """Twelve tasks, twice, by the random policy; the server is killed now and then."""
    rows = []
    with AgentEnv(server.url, patience=20.0) as env:
        played = play_all(
            missing(env.tasks(split)[:12], 2, 0, ()),
            env.session,
            Randomly(3),
            tools=tuple(env.tools(split)),
            max_calls=20,
            concurrency=6,
        )
        for row in played:
            rows.append(row)
            if kills and len(rows) % 5 == 0:
                kills -= 1
                server.restart()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("bundle, split", CASES)
def test_kills_change_no_row(bundle: str, split: str, tmp_path: Path) -> None:
    with LocalServer(bundle, max_sessions=8, journal=tmp_path) as server:
        quiet = evaluate(server, split, kills=0)
        disturbed = evaluate(server, split, kills=3)
    assert [row.error for row in disturbed if row.reward is None] == []
    assert comparable(disturbed) == comparable(quiet)
    assert len(quiet) == 24
