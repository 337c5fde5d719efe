"""Four policies as small models: on the person's side, on the box, and what is kept of the work.

Where reading left a doubt, the kinder reading was taken. docs/scoreboard.md says it in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Protocol

from tests.faults.clock import START
from tests.faults.cloud import Instance
from tests.faults.scoreboard.yard import BUCKET, REFUSED, Computer, OnBox, Yard, on_end
from tests.faults.world import ALIVE

Kept = Iterator[tuple[str, bytes]]
LOOK_S = 30.0


class Policy(OnBox, Protocol):
    """One life's worth of it."""

    title: str
    keys_on_boxes: bool

    def control(self, yard: Yard) -> None:
        """The person's side, from the launch on; it dies with the laptop."""

    def kept(self) -> Kept:
        """What can be had of the work in the end, by the names that the job's files have."""


class _Modelled:
    """Does nothing, anywhere."""

    title = ""
    keys_on_boxes = False
    yard: Yard

    def on_boot(self, box: Computer) -> None:
        pass

    def on_tick(self, box: Computer) -> None:
        pass

    def control(self, yard: Yard) -> None:
        self.yard = yard

    def kept(self) -> Kept:
        yield from self.yard.in_bucket().items()


class IdleStop(_Modelled):
    """A process on the box ends it once no job has run for so long."""

    title = "idle auto-stop"
    IDLE_S, EVERY_S = 600.0, 60.0

    def control(self, yard: Yard) -> None:
        self.yard = yard
        yard.patiently(lambda: yard.find() or yard.launch())

    def on_tick(self, box: Computer) -> None:
        _mirror(self.yard, box, unfinished=False)
        if box.job.exit_code() is None:
            box.waits_since = None
        elif box.waited(self.IDLE_S) and box.lived_s % self.EVERY_S == 0:
            self.yard.end_itself(box)


class JobTimer(_Modelled):
    """A server launches, ends the job's box when the job is over, and bounds the job's time."""

    title = "job timer only"
    FORCE_AFTER_S, SILENT_S, GIVES_UP_S = 300.0, 300.0, 900.0

    def control(self, yard: Yard) -> None:
        self.yard = yard
        self._end(yard.patiently(yard.launch), self._watch())

    def on_tick(self, box: Computer) -> None:
        limit_s = (self.yard.plan.boxes[0].drain_at - START).total_seconds()
        if box.lived_s >= limit_s:
            box.job.stop(hard=box.waited(self.FORCE_AFTER_S))

    def kept(self) -> Kept:
        """The work folder is a volume of its own, which outlives the box."""
        for box in self.yard.computers():
            yield from box.files().items()

    def _watch(self) -> bool:
        """Until the job is over, or its box hasn't answered for a while; False if EC2 ended it."""
        yard, heard = self.yard, self.yard.now()
        while True:
            yard.world.time.sleep(LOOK_S)
            box = yard.computer(yard.known[-1])
            if box.answers:
                heard = yard.now()
                if box.trainers and box.job.exit_code() is not None:
                    return True
            elif yard.now() - heard >= timedelta(seconds=self.SILENT_S):
                return self._lives(yard.known[-1])

    def _lives(self, instance_id: str) -> bool:
        try:
            return self.yard.state(instance_id) in ALIVE
        except REFUSED:
            return True

    def _end(self, instance_id: str, lives: bool) -> None:
        """For a quarter of an hour; then it is on record as terminated."""
        gives_up = self.yard.now() + timedelta(seconds=self.GIVES_UP_S)
        while lives and self.yard.now() < gives_up:
            try:
                self.yard.end(instance_id)
                return
            except REFUSED:
                self.yard.world.time.sleep(LOOK_S)


class TimerMirror(_Modelled):
    """A unit on the box ends it at a time, and its folder is mirrored; a group starts it again."""

    title = "box timer + mirror"
    keys_on_boxes = True
    STOP_S, LAST_S, AGAIN_S = 90.0, 20.0, 60.0
    GROUP = "the-group's-name"

    def __init__(self) -> None:
        self._left_s: dict[str, float] = {}
        self._told: set[str] = set()

    def control(self, yard: Yard) -> None:
        self.yard = yard
        on_end(yard.world, self._ended)
        yard.patiently(lambda: yard.launch(token=self.GROUP))

    def on_boot(self, box: Computer) -> None:
        """What is in the bucket comes back first; the time that is left is counted only now."""
        for name, data in self.yard.in_bucket().items():
            path = box.place.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        end_at = self.yard.plan.boxes[0].drain_at.timestamp()
        self._left_s[box.instance_id] = end_at - box.wall()

    def on_tick(self, box: Computer) -> None:
        _mirror(self.yard, box, unfinished=True)
        if box.instance_id in self._told:
            return
        over_s = box.lived_s - self._left_s[box.instance_id]
        if over_s >= 0:
            box.job.stop(hard=over_s >= self.STOP_S)
        if box.job.exit_code() is not None and box.waited(self.LAST_S):
            self._told.add(box.instance_id)
            self.yard.end_itself(box)

    def _ended(self, instance: Instance) -> None:
        if instance.reason.startswith("Server."):
            again = self.yard.now() + timedelta(seconds=self.AGAIN_S)
            token = f"{self.GROUP} {instance.id}"
            # The group launches inside AWS: no laptop is needed for it.
            self.yard.staged.later(again, lambda: self._again(token))

    def _again(self, token: str) -> None:
        gone, self.yard.staged.laptop_gone = self.yard.staged.laptop_gone, False
        self.yard.launch(token=token)
        self.yard.staged.laptop_gone = gone


class BareShutdown(_Modelled):
    """`shutdown -h +minutes` at boot; a person copies the results when it should be over."""

    title = "bare shutdown timer"
    EXPECTED_S, LAST_LOOK_S = 35 * 60, 180

    def control(self, yard: Yard) -> None:
        self.yard = yard
        yard.patiently(lambda: yard.launch(shutdown="terminate"))
        for look_s in (self.EXPECTED_S, self._end_s - self.LAST_LOOK_S):
            yard.sleep_until_s(look_s)
            if self._look(yard.computer(yard.known[-1])):
                return

    def on_tick(self, box: Computer) -> None:
        if box.lived_s >= self._end_s:
            box.power_off("shutdown")

    def kept(self) -> Kept:
        yield from self.yard.fetched.items()

    @property
    def _end_s(self) -> float:
        return (self.yard.plan.boxes[0].poweroff_at - START).total_seconds()

    def _look(self, box: Computer) -> bool:
        """Copy what is there, and end the box if its job is over. True when all is done."""
        if self.yard.staged.laptop_gone or not box.answers:
            return False
        self.yard.fetched |= box.files()
        if box.job.exit_code() is None:
            return False
        try:
            self.yard.end(box.instance_id)
        except REFUSED:
            return False
        return True


POLICIES: tuple[type[IdleStop | JobTimer | TimerMirror | BareShutdown], ...] = (
    IdleStop,
    JobTimer,
    TimerMirror,
    BareShutdown,
)


def _mirror(yard: Yard, box: Computer, *, unfinished: bool) -> None:
    """Make the bucket look like the disk, deletions too, if anything on it is new.

    A change counts as seen before its copy has worked, so that what failed waits for the next one.
    """
    if box.job.changes == box.seen:
        return
    box.seen, files = box.job.changes, box.files()
    being_written = {p.relative_to(box.place.work).as_posix() for p in box.job.being_written}
    s3 = box.client(fast=False)
    try:
        for name, data in files.items():
            if box.sent.get(name) != data and (unfinished or name not in being_written):
                s3.put_object(Bucket=BUCKET, Key=name, Body=data)
                box.sent[name] = data
        for name in box.sent.keys() - files.keys():
            s3.delete_object(Bucket=BUCKET, Key=name)
            del box.sent[name]
    except REFUSED:
        pass
