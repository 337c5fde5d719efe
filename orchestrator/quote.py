"""What a plan costs: at worst, which is reserved, and as expected, which is only told.

Worst case of a box: from launch until the cloud has ended it, SLACK included, at the dearest type
it may launch as. Nothing here knows of caps.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Literal

from orchestrator.box.reports import most_bytes, most_writes
from orchestrator.catalog import StoragePrices
from orchestrator.money import HOURS_PER_MONTH, MICRO_USD, OLD_VERSION_DAYS, cents_up, hours_of
from orchestrator.spec import BoxSpec, RunbookSpec

Cloud = Literal["local", "aws"]

SLACK = timedelta(minutes=3)
"""A one-time schedule fires up to 60 s late (EventBridge Scheduler's precision); the rest is for
its call to be retried and to take effect."""
VOLUME_SLACK = timedelta(minutes=10)
"""A volume outlives its instance until the instance is terminated."""
LEAST_BILLED = timedelta(seconds=60)
"""EC2 bills each launch for at least a minute."""
BOOT = {"local": timedelta(seconds=45), "aws": timedelta(minutes=6)}
"""From launch to the first job's start, for the expected price: boot, and installing pins."""
TICK_S: dict[Cloud, int] = {"local": 1, "aws": 10}
"""How often a box reports, in seconds."""
GUARD_USD = Decimal("0.006")
"""A box's guard that has to end it: an automation of three steps at most, 0.002 USD each (Systems
Manager pricing page, "Automation")."""
PUTS_PER_SECOND = 1
"""Allowance for S3 requests in a box's life: half of them its manifests and blobs, half for those
who watch it."""
PUTS_OF_RESULTS = 20_000
"""Allowance for one run's results: files, and the parts of big ones."""
RETENTION_MONTHS = 1
"""Results are kept by choice; the cap answers for the first month."""
OLD_VERSION_MONTHS = Decimal(OLD_VERSION_DAYS + 2) * 24 / HOURS_PER_MONTH
"""S3 counts days from the next midnight on, and takes its time."""
_GB = Decimal(10**9)


def compute_usd(price: Decimal, time: timedelta) -> Decimal:
    """An instance at `price` USD an hour, billed by the second."""
    return price * hours_of(_seconds(max(time, LEAST_BILLED)))


def beside_usd(storage: StoragePrices, disk_gb: int, time: timedelta) -> Decimal:
    """What a box bills beside compute: its gp3 volume and its public IPv4 address."""
    hours = hours_of(_seconds(time))
    return storage.gp3_gb_month * disk_gb * hours / HOURS_PER_MONTH + storage.ipv4_hour * hours


def longest_life(box: BoxSpec) -> timedelta:
    """From launch until the cloud has ended the box, whoever died."""
    return box.hours + box.cloud_margin + SLACK


def worst_box_usd(box: BoxSpec, dearest: Decimal, storage: StoragePrices) -> Decimal:
    """The most one box can bill, rounded up to cents."""
    life = longest_life(box)
    beside = beside_usd(storage, box.disk_gb, life + VOLUME_SLACK)
    return cents_up(compute_usd(dearest, life) + beside)


def worst_from_now_usd(
    price: Decimal, storage: StoragePrices, disk_gb: int, left: timedelta
) -> Decimal:
    """The most a box can bill that is launched now and ended by the cloud after `left`.

    Not rounded to cents: with what the lost one cost it must not be more than was reserved for it.
    """
    life = max(left, timedelta()) + SLACK
    beside = beside_usd(storage, disk_gb, life + VOLUME_SLACK)
    return (compute_usd(price, life) + beside).quantize(MICRO_USD, ROUND_CEILING)


def worst_results_usd(spec: RunbookSpec, storage: StoragePrices, cloud: Cloud) -> Decimal:
    """Allowance for S3: a month of `results_gb`, one pull over the internet, the requests, and
    what the boxes report of themselves; and for the boxes' guards, should they have to act.
    """
    kept = spec.results_gb * storage.s3_gb_month * RETENTION_MONTHS
    pulled = spec.results_gb * storage.transfer_out_gb
    lives = sum(_seconds(longest_life(box)) for box in spec.boxes.values())
    puts = _puts_usd(storage, lives * PUTS_PER_SECOND + PUTS_OF_RESULTS)
    reports = worst_reports_usd(spec, storage, cloud)
    return cents_up(kept + pulled + puts + reports + GUARD_USD * len(spec.boxes))


def worst_reports_usd(spec: RunbookSpec, storage: StoragePrices, cloud: Cloud) -> Decimal:
    """Heartbeats, statuses and consoles: every version of them as long as the bucket keeps it, and
    their requests. Bounded by a box's life and its tick alone, however much its jobs say.
    """
    size = puts = 0
    for name, box in spec.boxes.items():
        life_s, mine = (
            _seconds(longest_life(box)),
            [j for j in spec.jobs.values() if j.box == name],
        )
        needed = {other for job in mine for other in spec.needed_by(job)}
        others = sum(spec.jobs[other].box != name for other in needed)
        size += most_bytes(life_s, TICK_S[cloud], len(mine))
        puts += most_writes(life_s, TICK_S[cloud], len(mine), others)
    kept = size / _GB * storage.s3_gb_month * OLD_VERSION_MONTHS
    return kept + _puts_usd(storage, puts)


def expected_box_usd(
    box: BoxSpec, price: Decimal, storage: StoragePrices, time: timedelta
) -> Decimal:
    """One box that lives for `time`, at the price of its first choice of type."""
    return cents_up(compute_usd(price, time) + beside_usd(storage, box.disk_gb, time))


def expected_results_usd(
    spec: RunbookSpec, storage: StoragePrices, lives: dict[str, timedelta]
) -> Decimal:
    """Requests and storage while the run lasts; a pull within the free 100 GB a month."""
    longest = hours_of(_seconds(max(lives.values())))
    kept = spec.results_gb * storage.s3_gb_month * longest / HOURS_PER_MONTH
    seconds = sum(_seconds(life) for life in lives.values())
    return cents_up(kept + _puts_usd(storage, seconds // 10))


def _puts_usd(storage: StoragePrices, count: int) -> Decimal:
    return storage.s3_put_1000 * count / 1000


def _seconds(time: timedelta) -> int:
    return int(time.total_seconds())
