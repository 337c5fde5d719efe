"""An invoice of one month, between those of other months and of a company with almost its name."""

from __future__ import annotations

import random

from agent_env.bundles.inbox import vocabulary as words
from agent_env.bundles.inbox.goals import Fact, Goal
from agent_env.bundles.inbox.mailbox import Person
from agent_env.bundles.inbox.story import Story
from agent_env.bundles.inbox.templates.post import Post, first_day_of

LABELS = ("finance", "to pay", "bills")


def invoice(rng: random.Random) -> Story:
    post, colleague_label = Post(rng), rng.choice(LABELS)
    pair = rng.sample(rng.choice(words.VENDORS), 2)
    vendor, rival = (post.company(name, "billing") for name in pair)
    amounts = [str(amount) for amount in rng.sample(range(110, 990), 4)]
    colleague = post.person()
    month = rng.randrange(3)
    billed = [_bill(post, vendor, place, amounts[place], rng) for place in range(3)]
    mistaken = _bill(post, rival, month, amounts[3], rng)
    reminder = f"Our invoice for {words.MONTHS[month]} is due soon. It was sent some days ago."
    post.reply(billed[month], vendor, reminder, rng.randint(6, 9))
    post.chatter([colleague], rng.randint(5, 8))
    mails, ids = post.deliver()
    fact = Fact(
        about="the amount",
        says=(amounts[month],),
        never=tuple(other for other in amounts if other != amounts[month]),
    )
    name, target = f"{vendor.name}'s invoice for {words.MONTHS[month]}", ids[billed[month]]
    return Story(
        kind="invoice",
        prompt=f'Find {name}. Label it "{colleague_label}" and tell me the amount.',
        mails=mails,
        first=(Goal(kind="label", described=name, message=target, label=colleague_label),),
        answer=fact,
        second=(
            Goal(kind="send", described=colleague.name, to=colleague.address, fact=fact),
            Goal(kind="archive", described=name, message=target),
        ),
        request=f"Now mail {colleague.name} the amount, then archive the invoice.",
        query=f"{vendor.name} invoice {words.MONTHS[month]}",
        reads=(target,),
        rivals={target: ids[mistaken]},
    )


def _bill(post: Post, vendor: Person, place: int, amount: str, rng: random.Random) -> int:
    month = words.MONTHS[place]
    body = f"Please find our invoice for {month}. The amount is {amount} EUR, due in 14 days."
    day = first_day_of(place + 2) + rng.randint(1, 5)
    return post.mail(vendor, f"Invoice {month}", body, day)
