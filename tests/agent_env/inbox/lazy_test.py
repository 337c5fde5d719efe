"""Lazy policies, over all tasks: each is worth next to nothing, and the bounds say how much."""

from __future__ import annotations

import random
import statistics

import pytest

from agent_env.bundles.inbox import bundle
from agent_env.bundles.inbox.mailbox import Mailbox
from agent_env.bundles.inbox.story import Story
from agent_env.types import END_TURN, TaskData

from .players import ALL, Calls, Policy, opened, play, reward, story_of


def nothing(story: Story, box: Mailbox) -> Calls:
    return []


def only_reads(story: Story, box: Mailbox) -> Calls:
    return [("search", {"query": story.query}), *_each("read", box)]


def archives_everything(story: Story, box: Mailbox) -> Calls:
    return _each("archive", box)


def labels_everything(story: Story, box: Mailbox) -> Calls:
    asked = {goal.label for goal in (*story.first, *story.second) if goal.label} or {"done"}
    return [
        ("label", {"message_id": id, "label": label})
        for id in box.messages
        for label in sorted(asked)
    ]


def writes_everything_to_everybody(story: Story, box: Mailbox) -> Calls:
    return _letters(box, "\n".join(mail.body for mail in story.mails))


def writes_nothing_much_to_everybody(story: Story, box: Mailbox) -> Calls:
    return _letters(box, "Hello.")


def does_everything(story: Story, box: Mailbox) -> Calls:
    return [
        *archives_everything(story, box),
        *labels_everything(story, box),
        *writes_everything_to_everybody(story, box),
    ]


def _each(tool: str, box: Mailbox) -> list[tuple[str, dict[str, str]]]:
    return [(tool, {"message_id": id}) for id in box.messages]


def _letters(box: Mailbox, body: str) -> list[tuple[str, dict[str, str]]]:
    calls: list[tuple[str, dict[str, str]]] = []
    for count, person in enumerate(box.people(), start=1):
        calls.append(("draft", {"to": person.address, "subject": "Mail", "body": body}))
        calls.append(("send", {"draft_id": f"d{count}"}))
    return calls


def worth(data: TaskData, policy: Policy, response: str) -> float:
    task = opened(data)
    story = story_of(data)
    play(task, policy(story, story.mailbox()))
    while task.end_turn(response) is not None:
        pass
    return reward(task)


@pytest.mark.parametrize(
    "policy, mean, most",
    [
        (nothing, 0.0, 0.0),
        (only_reads, 0.0, 0.0),
        (archives_everything, 0.03, 0.06),
        (labels_everything, 0.03, 0.05),
        (writes_everything_to_everybody, 0.0, 0.0),
        (writes_nothing_much_to_everybody, 0.0, 0.0),
        (does_everything, 0.02, 0.03),
    ],
)
def test_a_lazy_policy_with_an_empty_reply_is_worth_next_to_nothing(
    policy: Policy, mean: float, most: float
) -> None:
    rewards = [worth(data, policy, "") for data in ALL]
    assert max(rewards) <= most
    assert statistics.mean(rewards) <= mean


def test_quoting_the_whole_mailbox_as_the_answer_answers_nothing() -> None:
    for data in ALL:
        story = story_of(data)
        task = opened(data)
        task.end_turn("\n".join(mail.body for mail in story.mails))
        assert task.score()["answer"] == 0.0 or story.kind == "newsletter"


def test_the_right_answer_alone_is_worth_nothing_while_nothing_was_done() -> None:
    for data in ALL:
        calls = bundle.expert(data, noise=0.0, rng=random.Random(0))
        answer = next(args["response"] for name, args in calls if name == END_TURN)
        assert worth(data, nothing, answer) == 0.0


def test_plain_text_after_the_first_turns_work_is_worth_a_quarter() -> None:
    """Text that isn't passed to `end_turn` reaches the task empty; nothing follows it."""
    for data in ALL:
        calls = bundle.expert(data, noise=0.0, rng=random.Random(0))
        names = [name for name, _ in calls]
        task = opened(data)
        play(task, calls[: names.index(END_TURN)])
        assert (task.end_turn(""), task.end_turn(""))[1] is None
        assert reward(task) == 0.25
        assert task.score()["answer"] == task.score()["second"] == 0.0


def test_an_expert_that_answers_with_empty_replies_loses_the_answer_only() -> None:
    for data in ALL:
        calls = bundle.expert(data, noise=0.0, rng=random.Random(0))
        silent = [(name, {"response": ""} if name == END_TURN else args) for name, args in calls]
        task = opened(data)
        play(task, silent)
        assert reward(task) == 0.75
