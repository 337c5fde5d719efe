"""A meeting that was moved, between other meetings with the same person and with a namesake."""

from __future__ import annotations

import random

from agent_env.bundles.inbox import vocabulary as words
from agent_env.bundles.inbox.goals import Fact, Goal
from agent_env.bundles.inbox.story import Story
from agent_env.bundles.inbox.templates.post import Post

LABELS = ("calendar", "meetings", "this week")


def meeting(rng: random.Random) -> Story:
    post, label = Post(rng), rng.choice(LABELS)
    person, other = post.person(), post.person()
    namesake = post.person(first=person.name.split()[0])
    topic, second_topic = rng.sample(words.TOPICS, 2)
    days, times = rng.sample(words.DAYS, 4), rng.sample(words.TIMES, 4)
    place = rng.choice(words.PLACES)
    when = [f"{day} at {time}" for day, time in zip(days, times, strict=True)]
    asked = f"Could we meet about {topic} on {when[0]}, in {place}?"
    proposed = post.mail(person, _subject(topic), asked, rng.randrange(60, 100))
    declined = post.reply(proposed, other, f"{days[0]} is not possible for me, sorry.", 1)
    moved = post.reply(declined, person, f"Then {when[1]} instead. Same place.", 1)
    elsewhere = f"Could we meet about {second_topic} on {when[2]}?"
    post.mail(person, _subject(second_topic), elsewhere, rng.randrange(20, 110))
    post.mail(namesake, _subject(topic), f"My part of {topic}: {when[3]}.", rng.randrange(20, 60))
    post.chatter([other], rng.randint(5, 8))
    mails, ids = post.deliver()
    said = [_spoken(time) for time in times]
    others = (days[0], said[0], *days[2:], *said[2:])
    fact = Fact(about="day and time", says=(days[1], said[1]), never=others)
    name = f"{person.name}'s last mail about {topic}"
    draft = {"described": person.name, "to": person.address, "fact": fact}
    return Story(
        kind="meeting",
        prompt=(
            f"When does {person.name} want to meet about {topic}? Tell me the day and the time, "
            f"and draft a reply to {person.name} that names both. Don't send it yet."
        ),
        mails=mails,
        first=(Goal.model_validate({"kind": "draft", **draft}),),
        answer=fact,
        second=(
            Goal.model_validate({"kind": "send", **draft}),
            Goal(kind="label", described=name, message=ids[moved], label=label),
        ),
        request=f'Now send it, and label {name} "{label}".',
        query=f"{person.name} {topic}",
        reads=(ids[proposed], ids[moved]),
        rivals={ids[moved]: ids[proposed]},
    )


def _subject(topic: str) -> str:
    return topic.removeprefix("the ").capitalize()


def _spoken(time: str) -> str:
    """Either way to write a time before ten."""
    return f"{time}|{time.removeprefix('0')}" if time.startswith("0") else time
