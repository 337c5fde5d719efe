"""Whatever a model calls: no task breaks, scores stay in range, and a replay says the same."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_env.bundles.inbox import bundle
from agent_env.bundles.inbox.tasks import InboxTask
from agent_env.errors import ToolError
from agent_env.types import END_TURN, TaskData

from .players import ALL, opened, play, reward

CAREFUL = settings(max_examples=150, deadline=None, derandomize=True)

texts = st.sampled_from(["412", "Tuesday", "finance", "Hello", "", " ", "3", "Ada", "a" * 300])
ids = st.integers(0, 22).map(lambda number: f"m{number}") | st.sampled_from(["d1", "d2", "x"])
people = st.sampled_from(["Lampenhaus", "Clara Holm", "nobody", ""]) | st.integers(0, 9)
calls = st.one_of(
    st.tuples(st.just("search"), st.fixed_dictionaries({}, optional={"query": texts})),
    st.tuples(st.sampled_from(["read", "archive"]), st.fixed_dictionaries({"message_id": ids})),
    st.tuples(
        st.just("label"),
        st.fixed_dictionaries(
            {"message_id": ids, "label": texts}, optional={"remove": st.booleans()}
        ),
    ),
    st.tuples(
        st.just("draft"), st.fixed_dictionaries({"to": people, "subject": texts, "body": texts})
    ),
    st.tuples(st.just("send"), st.fixed_dictionaries({"draft_id": ids})),
    st.tuples(st.just(END_TURN), st.fixed_dictionaries({"response": texts})),
)
tasks = st.sampled_from(ALL)


def tried(task: InboxTask, script: list[tuple[str, dict[str, Any]]]) -> list[str | None]:
    """What each call answered, up to the end of the episode."""
    seen: list[str | None] = []
    people = [mail["sender"] for mail in task.data.data["mails"]]
    for name, given_args in script:
        args = dict(given_args)
        if isinstance(args.get("to"), int):
            args["to"] = people[args["to"] % len(people)]
        try:
            seen += play(task, [(name, args)])
        except ToolError as error:
            seen.append(str(error))
        if task.done:
            break
    return seen


@CAREFUL
@given(tasks, st.lists(calls, max_size=25))
def test_no_calls_break_a_task_and_the_same_calls_say_the_same(
    data: TaskData, script: list[tuple[str, dict[str, Any]]]
) -> None:
    one, other = opened(data), opened(data)
    assert tried(one, script) == tried(other, script)
    assert one.score() == other.score()
    assert all(0 <= score <= 1 for score in one.score().values())
    one.reset(None)
    assert tried(one, script) == tried(opened(data), script)


@CAREFUL
@given(tasks, st.integers(0, 22), st.sampled_from(["label", "archive", "remove", "send"]))
def test_a_change_that_nobody_asked_for_never_pays(data: TaskData, number: int, kind: str) -> None:
    task = opened(data)
    expert = bundle.expert(data, noise=0.0, rng=random.Random(0))
    play(task, expert[:-1])
    before = reward(task)
    message = f"m{number}"
    stray: dict[str, tuple[str, dict[str, Any]]] = {
        "label": ("label", {"message_id": message, "label": "stray"}),
        "archive": ("archive", {"message_id": message}),
        "remove": ("label", {"message_id": message, "label": "finance", "remove": True}),
        "send": ("draft", {"to": number, "subject": "", "body": "stray"}),
    }
    tried(task, [stray[kind], ("send", {"draft_id": "d3"})])
    assert reward(task) <= before == 1.0
