"""The task as an agent meets it: two turns, the second after what was done in the first."""

from __future__ import annotations

import random
import statistics

import pytest

from agent_env.bundles.inbox import bundle
from agent_env.bundles.inbox.tasks import InboxTask
from agent_env.errors import InvalidArguments, ToolError
from agent_env.types import END_TURN, TaskData

from .players import ALL, Calls, of_kind, opened, play, reward, story_of


def expert(data: TaskData, noise: float = 0.0, seed: int = 0) -> list[tuple[str, dict[str, str]]]:
    return bundle.expert(data, noise=noise, rng=random.Random(seed))


def first_turn(data: TaskData) -> Calls:
    """The expert's calls before its first answer."""
    calls = expert(data)
    names = [name for name, _ in calls]
    return calls[: names.index(END_TURN)]


def answered(data: TaskData) -> str:
    return next(args["response"] for name, args in expert(data) if name == END_TURN)


def test_the_expert_gets_the_whole_reward_on_every_task_of_both_splits() -> None:
    assert len(ALL) >= 400
    for data in ALL:
        task = opened(data)
        seen = play(task, expert(data))
        assert set(task.score().values()) == {1.0}, data.id
        assert reward(task) == 1.0
        assert task.done
        thanked = [text for text in seen if text and text.startswith("Thank you.")]
        assert len(thanked) == 1


def test_more_noise_makes_a_worse_expert() -> None:
    means = []
    for noise in (0.0, 0.3, 0.6, 1.0):
        rewards = []
        for data in bundle.tasks("eval"):
            task = opened(data)
            play(task, expert(data, noise, seed=data.index))
            rewards.append(reward(task))
        means.append(statistics.mean(rewards))
    assert means[0] > means[1] + 0.2 > means[2] + 0.3 > means[3] + 0.4
    assert means[-1] < 0.1


def test_the_expert_is_the_same_for_the_same_random_numbers() -> None:
    data = of_kind("invoice")
    assert expert(data, 0.5, seed=3) == expert(data, 0.5, seed=3)
    assert expert(data, 0.5, seed=3) != expert(data, 0.5, seed=4)


@pytest.mark.parametrize("kind", ["invoice", "order", "meeting", "newsletter", "choice"])
def test_the_second_message_depends_on_what_was_done_in_the_first(kind: str) -> None:
    data = of_kind(kind)
    done, undone, silent = opened(data), opened(data), opened(data)
    (*_, thanked) = play(done, [*first_turn(data), (END_TURN, {"response": answered(data)})])
    complained = undone.end_turn(answered(data))
    (*_, asked_again) = play(silent, [*first_turn(data), (END_TURN, {"response": ""})])
    assert thanked is not None
    assert thanked.startswith("Thank you.")
    assert complained is not None
    assert "Put that right." in complained
    assert asked_again is not None
    assert asked_again.startswith("You didn't tell me ")
    for message in (complained, asked_again):
        assert message.endswith(thanked.removeprefix("Thank you. "))


def test_a_wrong_label_is_named_and_may_be_put_right() -> None:
    data = of_kind("invoice")
    story = story_of(data)
    (goal,) = story.first
    wrong = story.rivals[goal.message]
    task = opened(data)
    task.call_tool("label", {"message_id": wrong, "label": goal.label})
    said = task.end_turn(answered(data))
    assert said is not None
    assert f'You labelled {wrong} "{goal.label}", but I mean {goal.described}.' in said
    assert (task.score()["first"], task.score()["careful"]) == (0.0, 0.0)
    task.call_tool("label", {"message_id": wrong, "label": goal.label, "remove": True})
    task.call_tool("label", {"message_id": goal.message, "label": goal.label})
    assert task.end_turn("") is None
    assert task.score() == {
        "first": 0.0,
        "answer": 1.0,
        "second": pytest.approx(1 / 3),
        "careful": 1,
    }


def test_a_draft_that_was_sent_too_early_or_says_the_wrong_thing_is_complained_about() -> None:
    data = of_kind("meeting")
    (goal,) = story_of(data).first
    task = opened(data)
    play(task, first_turn(data))
    task.call_tool("send", {"draft_id": "d1"})
    said = task.end_turn(answered(data))
    assert said is not None
    assert f"I had asked for a draft to {goal.described}, and you sent it." in said
    task.reset(None)
    task.call_tool("draft", {"to": goal.to, "subject": "S", "body": "Whenever you like."})
    assert "doesn't say the right thing" in (task.end_turn("") or "")


@pytest.mark.parametrize("option", [0, 1])
def test_what_was_chosen_in_the_first_turn_is_what_the_second_asks_for(option: int) -> None:
    data = of_kind("choice")
    story = story_of(data)
    person, helper = (goal.to for goal in story.second)
    chosen, other = story.options[option], story.options[1 - option]
    task = opened(data)
    task.call_tool("draft", {"to": person, "subject": "S", "body": f"{chosen} is fine."})
    said = task.end_turn(f"I took {chosen}.")
    assert said is not None
    assert said.startswith(f"Thank you. {chosen} it is.")
    assert other not in said
    task.call_tool("send", {"draft_id": "d1"})
    task.call_tool("draft", {"to": helper, "subject": "S", "body": f"It is on {chosen}."})
    task.call_tool("send", {"draft_id": "d2"})
    task.end_turn("Done.")
    assert reward(task) == 1.0


def test_naming_both_days_takes_neither() -> None:
    data = of_kind("choice")
    story = story_of(data)
    task = opened(data)
    both = " or ".join(story.options)
    task.call_tool("draft", {"to": story.first[0].to, "subject": "S", "body": both})
    said = task.end_turn(both)
    assert said is not None
    assert "doesn't say the right thing" in said
    assert f"{story.options[0]} it is." in said
    assert task.score()["answer"] == 0.0


def test_each_change_that_nobody_asked_for_costs() -> None:
    data = of_kind("invoice")
    task = opened(data)
    play(task, expert(data))
    for count, expected in enumerate((1 / 2, 1 / 3), start=1):
        task.call_tool("label", {"message_id": "m1", "label": f"stray {count}"})
        assert task.score()["careful"] == pytest.approx(expected)
        assert reward(task) == pytest.approx(expected, abs=1e-6)


def test_undoing_what_was_done_in_the_first_turn_counts_as_a_stray_change() -> None:
    data = of_kind("invoice")
    (goal,) = story_of(data).first
    task = opened(data)
    play(task, expert(data))
    call = {"message_id": goal.message, "label": goal.label, "remove": True}
    task.call_tool("label", call)
    assert task.score()["careful"] == 0.5


def test_what_the_mailbox_refuses_is_told_to_the_model_and_the_episode_goes_on() -> None:
    task = opened(of_kind("order"))
    with pytest.raises(ToolError, match="search shows the ids"):
        task.call_tool("read", {"message_id": "m99"})
    with pytest.raises(InvalidArguments, match="draft_id"):
        task.call_tool("send", {"to": "somebody"})
    assert not task.done


def test_a_reset_starts_over() -> None:
    data = of_kind("newsletter")
    task = opened(data)
    seen = play(task, expert(data))
    task.reset(99)
    assert not task.done
    assert set(task.score().values()) == {0.0}
    assert play(task, expert(data)) == seen


def test_a_task_and_its_scores_can_be_looked_at_before_anything_was_done() -> None:
    task = bundle.open(of_kind("meeting"))
    assert isinstance(task, InboxTask)
    assert task.score() == dict.fromkeys(("first", "answer", "second", "careful"), 0.0)
