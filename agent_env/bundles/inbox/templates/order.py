"""An order number, between those of things with almost the same name and a parcel's number."""

from __future__ import annotations

import random

from agent_env.bundles.inbox import vocabulary as words
from agent_env.bundles.inbox.goals import Fact, Goal
from agent_env.bundles.inbox.mailbox import Person
from agent_env.bundles.inbox.story import Story
from agent_env.bundles.inbox.templates.post import Post

LABELS = ("orders", "shopping", "purchases")


def order(rng: random.Random) -> Story:
    post, label = Post(rng), rng.choice(LABELS)
    shop = post.company(rng.choice(words.SHOPS), "service")
    item, rival = rng.sample(rng.choice(words.ITEMS), 2)
    colour, other = rng.sample(words.COLOURS, 2)
    things = [f"{colour} {item}", f"{other} {item}", f"{colour} {rival}"]
    numbers = [f"K-{number}" for number in rng.sample(range(1000, 9999), 3)]
    parcels = [f"T-{number}" for number in rng.sample(range(10000, 99999), 2)]
    confirmed = [
        _confirm(post, shop, *bought, rng) for bought in zip(things, numbers, strict=True)
    ]
    shipped = [
        _ship(post, shop, things[place], confirmed[place], parcels[place]) for place in range(2)
    ]
    post.chatter([], rng.randint(5, 8))
    mails, ids = post.deliver()
    fact = Fact(about="the order number", says=(numbers[0],), never=(*numbers[1:], *parcels))
    name, target = f"{shop.name}'s confirmation for the {things[0]}", ids[confirmed[0]]
    sent = f"{shop.name}'s shipping mail for the {things[0]}"
    return Story(
        kind="order",
        prompt=(
            f"Which order number did {shop.name} give for the {things[0]}? "
            f'Label the confirmation "{label}".'
        ),
        mails=mails,
        first=(Goal(kind="label", described=name, message=target, label=label),),
        answer=fact,
        second=(
            Goal(kind="send", described=shop.name, to=shop.address, fact=fact),
            Goal(kind="archive", described=sent, message=ids[shipped[0]]),
        ),
        request=(
            f"The {item} arrived broken. Write to {shop.name} and name the order number. "
            f"Archive the mail that says the {things[0]} was shipped."
        ),
        query=f"{shop.name} {things[0]} order",
        reads=(target,),
        rivals={target: ids[confirmed[1]], ids[shipped[0]]: ids[shipped[1]]},
    )


def _confirm(post: Post, shop: Person, thing: str, number: str, rng: random.Random) -> int:
    body = f"Thank you. We confirm your order of one {thing}. The order number is {number}."
    return post.mail(shop, f"Order confirmed: {thing}", body, rng.randrange(90))


def _ship(post: Post, shop: Person, thing: str, confirmed: int, parcel: str) -> int:
    body = f"Your {thing} is on its way. The parcel number is {parcel}."
    return post.follow(confirmed, shop, f"Shipped: {thing}", body, 2)
