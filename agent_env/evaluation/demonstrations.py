"""A bundle's expert at every task of a split, without a results file."""

from __future__ import annotations

from agent_env.bundle import load_bundle
from agent_env.evaluation.measure import Request, open_env, settle
from agent_env.evaluation.policies.expert import Expert
from agent_env.evaluation.results import Header, Row
from agent_env.evaluation.run import missing, play_all


def demonstrate(bundle: str, split: str) -> tuple[Header, list[Row]]:
    """Play them on a server of our own.

    Raises BundleError, TaskNotFound, PolicyError without an expert, ServerDown.
    """
    policy = Expert(load_bundle(bundle))
    request = Request(target=bundle, split=split, policy="expert")
    with open_env(request) as env:
        measured = settle(request, env)
        rows = play_all(
            missing(measured.tasks, request.attempts, request.seed, ()),
            env.session,
            policy,
            tools=measured.tools,
            max_calls=request.max_calls,
            concurrency=request.concurrency,
        )
        return measured.header, sorted(rows, key=lambda row: row.index)
