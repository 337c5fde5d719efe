"""What the user says after the first turn: it depends on what the mailbox then looks like."""

from __future__ import annotations

from agent_env.bundles.inbox.goals import Goal
from agent_env.bundles.inbox.mailbox import Letter, Mailbox
from agent_env.bundles.inbox.story import Story


def choice_in(story: Story, box: Mailbox) -> str:
    """The option that the drafts name; the first where they name none, or both."""
    text = " ".join(letter.body for letter in box.letters.values()).lower()
    named = [option for option in story.options if option.lower() in text]
    if len(named) == 1:
        return named[0]
    return story.options[0] if story.options else ""


def second_message(story: Story, box: Mailbox, response: str) -> str:
    """Thanks or complaints, then the second request. `story` with its choice filled in."""
    complaints = [_complaint(goal, box) for goal in story.first if not goal.met(box, over=False)]
    if not response.strip():
        complaints.append(f"You didn't tell me {story.answer.about}.")
    elif not story.answer.told(response):
        complaints.append(f"What you say about {story.answer.about} isn't right, look again.")
    if not complaints:
        return f"Thank you. {story.request}"
    return f"{' '.join(complaints)} Put that right. {story.request}"


def _complaint(goal: Goal, box: Mailbox) -> str:
    if goal.kind == "label":
        return _not_labelled(goal, box)
    if goal.kind == "archive":
        return f"{goal.described} is still in the inbox."
    letters = [letter for letter in box.letters.values() if letter.to == goal.to]
    return _not_drafted(goal, letters)


def _not_labelled(goal: Goal, box: Mailbox) -> str:
    wrong = [id for id, labels in box.labels.items() if goal.label in labels]
    if not wrong:
        return f'{goal.described} has no label "{goal.label}".'
    marked = " and ".join(wrong)
    return f'You labelled {marked} "{goal.label}", but I mean {goal.described}.'


def _not_drafted(goal: Goal, letters: list[Letter]) -> str:
    if any(letter.sent for letter in letters):
        return f"I had asked for a draft to {goal.described}, and you sent it."
    if not letters:
        return f"There is no draft to {goal.described}."
    return f"Your draft to {goal.described} doesn't say the right thing."
