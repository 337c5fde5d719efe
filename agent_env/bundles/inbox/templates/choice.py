"""Two days on offer: whichever is taken, what follows must agree with it."""

from __future__ import annotations

import random

from agent_env.bundles.inbox import vocabulary as words
from agent_env.bundles.inbox.goals import Fact, Goal
from agent_env.bundles.inbox.story import CHOICE, OTHER, Story
from agent_env.bundles.inbox.templates.post import Post


def choice(rng: random.Random) -> Story:
    post = Post(rng)
    person, helper = post.person(), post.person()
    topic, second_topic = rng.sample(words.TOPICS, 2)
    days = rng.sample(words.DAYS, 4)
    place = rng.choice(words.PLACES)
    offer = f"For {topic} we could have {place} on {days[0]} or on {days[1]}. Which do you take?"
    offered = post.mail(person, _subject(topic), offer, rng.randrange(60, 110))
    other = f"For {second_topic} there is {place} on {days[2]} or on {days[3]}. Please tell me."
    mistaken = post.mail(person, _subject(second_topic), other, rng.randrange(20, 110))
    waiting = f"Please tell me as soon as there is a day for {topic}."
    post.mail(helper, f"Day for {topic}", waiting, rng.randrange(60, 110))
    post.chatter([], rng.randint(8, 10))
    mails, ids = post.deliver()
    fact = Fact(about="the day", says=(CHOICE,), never=(OTHER, *days[2:]))
    draft = {"described": person.name, "to": person.address, "fact": fact}
    return Story(
        kind="choice",
        prompt=(
            f"{person.name} offers two days for {topic}. Take one of them: draft a reply to "
            f"{person.name} that names only the day you take, and tell me which. Don't send it "
            "yet."
        ),
        mails=mails,
        first=(Goal.model_validate({"kind": "draft", **draft}),),
        answer=fact,
        second=(
            Goal.model_validate({"kind": "send", **draft}),
            Goal(kind="send", described=helper.name, to=helper.address, fact=fact),
        ),
        request=(
            f"{CHOICE} it is. Now send the draft to {person.name}, and mail {helper.name} "
            f"that {topic} is on {CHOICE}."
        ),
        options=(days[0], days[1]),
        query=f"{person.name} {topic}",
        reads=(ids[offered],),
        rivals={ids[offered]: ids[mistaken]},
    )


def _subject(topic: str) -> str:
    return topic.removeprefix("the ").capitalize()
