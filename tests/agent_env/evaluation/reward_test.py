"""Which reward was measured, also where a server that somebody else started knows it."""

from __future__ import annotations

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.errors import ResultsError
from agent_env.evaluation.comparison import compare
from agent_env.evaluation.measure import Request, settle

from ..conftest import COUNTER


def test_the_header_has_the_reward_of_the_server_and_two_rewards_do_not_mix() -> None:
    headers = []
    for reward in (None, "mean"):
        with LocalServer(COUNTER, reward=reward) as server, AgentEnv(server.url) as env:
            request = Request(target=server.url, split="eval", policy="expert")
            headers.append(settle(request, env).header)
    assert [header.reward for header in headers] == [None, "mean"]
    with pytest.raises(ResultsError, match="reward is None in the first and 'mean'"):
        compare((headers[0], []), (headers[1], []))
