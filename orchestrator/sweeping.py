"""`gpurun sweep`: what is ours in the account, what it costs, what would end, and ending it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from orchestrator.aws import sweep
from orchestrator.aws.skew import check_clock
from orchestrator.catalog import load_catalog
from orchestrator.clock import SystemClock
from orchestrator.console.terminal import make_console
from orchestrator.errors import TeardownError
from orchestrator.money import usd
from orchestrator.opened import open_cloud
from orchestrator.standing import Standing, standing, total_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from rich.console import Console

    from orchestrator.aws.leftover import Leftover
    from orchestrator.aws.session import Session
    from orchestrator.settings import CloudName


@dataclass(frozen=True)
class Found:
    """Everything of ours, sorted by what there is to do about it."""

    things: list[Standing]
    over: frozenset[str]
    """Runs past their expiry."""
    undated: frozenset[str]
    """Runs nothing of which has a readable expiry."""
    unseen: Mapping[str, str]
    boxes: tuple[Leftover, ...] = ()
    """Of runs that go on, boxes past an expiry of their own."""

    def of(self, runs: Iterable[str]) -> list[Standing]:
        wanted = set(runs)
        return [each for each in self.things if each.item.run in wanted]

    def is_late(self, thing: Standing) -> bool:
        """Whether a sweep ends it."""
        return thing.item.run in self.over or thing.item in self.boxes

    def late(self) -> list[Standing]:
        return [each for each in self.things if self.is_late(each)]

    def word(self, run: str) -> str:
        """What a sweep does about a run."""
        if not run:
            return "NAMES NO RUN"
        if run in self.undated:
            return "NO EXPIRY"
        return "expired" if run in self.over else "goes on"


def sweep_all(cloud: CloudName, *, yes: bool, as_json: bool) -> None:
    """List, in every region, what is ours; `yes` ends what is past its expiry.

    Raises:
        TeardownError: a region could not be looked at; or, with `yes`, something didn't go, says
            of no run or no expiry, and must be looked at.
        ClockWrong: with `yes`, by this machine's clock nobody can tell what is over.
    """
    session, now, console = open_cloud(cloud), SystemClock().now(), make_console(stderr=as_json)
    if yes:
        check_clock(session, SystemClock().now)
    found = _sorted(sweep.look(session), now)
    if as_json:
        make_console().print_json(json.dumps(_as_json(found), default=str))
    else:
        _print(found, console, yes=yes, cloud=cloud)
    problems = [f"could not look at {name}: {why}" for name, why in found.unseen.items()]
    if yes:
        problems += _end(session, found, now, console)
    if problems:
        words = "\n".join(f"    {problem}" for problem in problems)
        raise TeardownError(
            f"The account may not be clean:\n{words}", hint="Then again: gpurun sweep --yes"
        )


def _sorted(sight: sweep.Sight, now: datetime) -> Found:
    aged = {region: [item.aged(now) for item in of] for region, of in sight.by_region.items()}
    items = [item for of in aged.values() for item in of]
    over = frozenset(sweep.expired(items, now))
    return Found(
        things=standing(aged, load_catalog()),
        over=over,
        boxes=tuple(box for box in sweep.overdue(items, now) if box.run not in over),
        undated=frozenset(sweep.undated(items)),
        unseen=sight.unseen,
    )


def _end(session: Session, found: Found, now: datetime, console: Console) -> list[str]:
    """Ends what is over; what is still wrong afterwards, in words."""
    left, failed = [], {}
    if found.over or found.boxes:
        swept = sweep.sweep(session, now)
        left, failed = list(swept.left), swept.failed
        gone = sorted(set(swept.ended) - {item.run for item in left} - set(failed))
        boxes = [f"box {box.id} of {box.run}" for box in swept.boxes]
        runs = [f"{len(gone)} runs: {', '.join(gone)}"] if found.over else []
        console.print(f"Ended {'; '.join([*runs, *boxes])}", soft_wrap=True)
    loose = [] if found.over or found.boxes else [each.item for each in found.of([""])]
    return [
        *(f"left behind: {item.kind} {item.id}  {item.detail}" for item in (*left, *loose)),
        *(f"{run}: {why}" for run, why in failed.items()),
        *(f"{run} has no readable expiry: gpurun down {run}" for run in sorted(found.undated)),
    ]


def _print(found: Found, console: Console, *, yes: bool, cloud: CloudName) -> None:
    for run, things in groupby(found.things, key=lambda each: each.item.run):
        rows = list(things)
        what_now = f"  end it: gpurun down {run}" if run in found.undated else ""
        console.print(
            f"{found.word(run)}  {run or '(no run)'}  {_price(rows)}{what_now}", soft_wrap=True
        )
        for line in _lines(rows):
            console.print(f"    {line}", soft_wrap=True)
    for region, why in found.unseen.items():
        console.print(f"could not look at {region}: {why}", soft_wrap=True)
    console.print(_summary(found), soft_wrap=True)
    if (found.over or found.boxes) and not yes:
        console.print("End them: gpurun sweep --yes")
    if cloud == "local":
        console.print("That is the local cloud; for an account: gpurun sweep --cloud aws")


def _lines(things: list[Standing]) -> list[str]:
    """A run's free things in one line, unless it's one; what names no run, thing by thing."""
    free = [each for each in things if each.item.run and each.usd_per_hour == 0]
    folded = [f"+ {len(free)} things that cost nothing"] if len(free) > 1 else []
    return [
        f"{each.item.kind} {each.item.id}  {each.region}  {each.item.detail}  {_price([each])}"
        for each in things
        if not folded or each not in free
    ] + folded


def _summary(found: Found) -> str:
    if not found.over and not found.boxes:
        return "Nothing is past its expiry."
    boxes = f" and {len(found.boxes)} boxes of other runs" if found.boxes else ""
    cost = _price(found.late())
    return f"{len(found.over)} runs{boxes} are past their expiry; that costs {cost} until ended."


def _price(things: Iterable[Standing]) -> str:
    known, is_all = total_usd(things)
    if is_all:
        return f"{usd(known)}/h" if known else "free"
    return f"at least {usd(known)}/h, some of it at an unknown price" if known else "price unknown"


def _as_json(found: Found) -> dict[str, object]:
    rows = [
        asdict(each.item)
        | {"region": each.region, "usd_per_hour": each.usd_per_hour}
        | {"expired": found.is_late(each), "undated": each.item.run in found.undated}
        for each in found.things
    ]
    cost, is_all = total_usd(found.late())
    return {
        "found": rows,
        "unseen": dict(found.unseen),
        "expired_usd_per_hour": cost,
        "all_prices_known": is_all,
    }
