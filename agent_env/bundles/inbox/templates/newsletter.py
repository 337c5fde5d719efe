"""One month's issues of a newsletter, between other months and one with almost its name."""

from __future__ import annotations

import random

from agent_env.bundles.inbox import vocabulary as words
from agent_env.bundles.inbox.goals import Fact, Goal
from agent_env.bundles.inbox.mailbox import Person
from agent_env.bundles.inbox.story import Story
from agent_env.bundles.inbox.templates.post import Post, first_day_of

LABELS = ("keep", "read later", "ideas")
COUNTS = ("0|zero", "1", "2|two", "3|three", "4|four", "5|five", "6|six")
OTHERS = 4
"""Issues that are to stay: two of another month, two of the rival."""


def newsletter(rng: random.Random) -> Story:
    post, label = Post(rng), rng.choice(LABELS)
    pair = rng.sample(rng.choice(words.NEWSLETTERS), 2)
    paper, rival = (post.company(name, "news") for name in pair)
    reader, count, month = post.person(), rng.randint(2, 4), rng.randint(1, 3)
    subjects = rng.sample(words.ISSUES, count + OTHERS)
    codes = [f"R-{code}" for code in rng.sample(range(1000, 9999), count + OTHERS)]
    issues = list(zip(subjects, codes, strict=True))
    days = rng.sample(range(27), count)
    wanted = [
        _issue(post, paper, *issue, first_day_of(month + 1) + day)
        for issue, day in zip(issues[:count], days, strict=True)
    ]
    away = first_day_of(month + 1 + (1 if month == 1 else -1))
    before = [_issue(post, paper, *issue, away + rng.randrange(26)) for issue in issues[-2:]]
    near = [
        _issue(post, rival, *issue, first_day_of(month + 1) + rng.randrange(27))
        for issue in issues[count : count + 2]
    ]
    gossip = f"Do you still read {paper.name}? I gave it up last month."
    post.mail(reader, paper.name, gossip, first_day_of(month + 1) + rng.randrange(27))
    post.chatter([reader], rng.randint(3, 6))
    mails, ids = post.deliver()
    return Story(
        kind="newsletter",
        prompt=(
            f"Archive every issue of {paper.name} that came in {words.MONTHS[month]}, "
            "and nothing else. How many were there?"
        ),
        mails=mails,
        first=tuple(
            Goal(kind="archive", described=f"{paper.name} on {subject}", message=ids[key])
            for (subject, _), key in zip(issues, wanted, strict=False)
        ),
        answer=Fact(
            about="the number of issues",
            says=(COUNTS[count],),
            never=(*COUNTS[:count], *COUNTS[count + 1 :]),
        ),
        second=(
            Goal(
                kind="label",
                described=f"{paper.name} on {subjects[0]}",
                message=ids[wanted[0]],
                label=label,
            ),
            Goal(
                kind="send",
                described=reader.name,
                to=reader.address,
                fact=Fact(about="the reader code", says=(codes[0],), never=tuple(codes[1:])),
            ),
        ),
        request=(
            f'One of them was on {subjects[0]}. Label it "{label}" '
            f"and mail {reader.name} its reader code."
        ),
        query=f"{paper.name} {words.MONTHS[month]}",
        reads=(ids[wanted[0]],),
        rivals={ids[wanted[0]]: ids[near[0]], ids[wanted[1]]: ids[before[0]]},
    )


def _issue(post: Post, paper: Person, subject: str, code: str, day: int) -> int:
    body = f"In this issue of {paper.name}: {subject}. Your reader code is {code}."
    return post.mail(paper, f"{paper.name}: {subject}", body, day)
