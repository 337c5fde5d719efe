"""Commits a job's results: blobs by their hash, then a manifest that names them, then COMPLETE.

A manifest only ever names bytes that are in the bucket. A file that changes while it's read is
left for the next round (its last committed version stays listed); a checkpoint is listed whole
or not at all. Two rounds may be under way at once: one of the job's own log and metrics, one of
all the rest; what has arrived is committed while the rest is still on its way.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.box.allowance import USED_UP, Allowance, Refused
from orchestrator.box.blobs import Blobs, named
from orchestrator.box.commits import Commits, Unverified
from orchestrator.box.connection import StoreDown
from orchestrator.box.parts import Changed, Paused
from orchestrator.box.pieces import Entry
from orchestrator.box.redact import Redactor, Withheld, noted
from orchestrator.box.rounds import Round, Synced, Tally, time_of
from orchestrator.box.scan import OWN, Unit, again, checkpoint_of, scan, under
from orchestrator.box.store import Store
from orchestrator.box.streams import STREAMS, streams

# How often a round looks whether something is to be committed meanwhile, in seconds.
LOOK_S = 0.5
NAMED = 100
"""How many of what is left out COMPLETE names."""


@dataclass
class Syncer:
    """Remembers what of a job is in the bucket; a new one finds out by listing."""

    store: Store
    run: str
    job: str
    folder: Path
    allowance: Allowance = field(default_factory=Allowance)
    redact: Redactor = field(default_factory=Redactor)
    _withheld: dict[str, str] = field(default_factory=dict)
    _entries: dict[str, Entry] = field(default_factory=dict)
    """What the next manifest will name."""
    _known: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _recalling: threading.Lock = field(default_factory=threading.Lock)
    _own: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        under = f"jobs/{self.job}/blobs/"
        self._blobs = Blobs(self.store, under, self.allowance, self.redact)
        self._commits = Commits(self.store, self.run, self.job, self.allowance)

    def sync(self, round_: Round) -> Synced:
        """Raises StoreDown, Unverified."""
        self._recall()
        units, notes = scan(self.folder, round_.results)
        mine = [unit for unit in units if is_own(unit) or not round_.only_own]
        self._begin(mine, round_)
        tally = Tally(committed_at=time_of(round_))
        self._work_off(mine, round_, tally)
        final = round_.final and tally.whole
        self._commits.commit(self._now, round_.saying, final=final, last=round_.final)
        if tally.failure:
            raise tally.failure
        if not round_.only_own:
            self._blobs.sweep(found.name for unit in mine for found in unit.files)
        if final:
            self._complete(round_, notes)
        for_good = round_.final and tally.refused and not tally.waits
        refused = f"{USED_UP}; left out: {tally.refused[0]}" if for_good else ""
        seq = self._commits.seq or None
        withheld = tuple(sorted(self._withheld.values()))
        return Synced(seq, tally.whole, (*notes, *tally.notes), refused, withheld)

    def _recall(self) -> None:
        with self._recalling:
            self._blobs.recall()
            self._commits.recall()
            if not self._known:
                self._entries, self._known = dict(self._commits.listed), True

    def _begin(self, units: list[Unit], round_: Round) -> None:
        """Drop what is gone from the disk, and keep what was committed of the rest."""
        with self._lock:
            kept = {name: it for unit in units for name, it in self._kept(unit).items()}
            self._entries = kept | (self._not_own() if round_.only_own else {})

    def _not_own(self) -> dict[str, Entry]:
        return {name: entry for name, entry in self._entries.items() if name not in OWN}

    def _kept(self, unit: Unit) -> dict[str, Entry]:
        """What was said of a unit before; of a checkpoint with other files by now, nothing."""
        if unit.checkpoint:
            before = {
                n: e for n, e in self._entries.items() if checkpoint_of(n) == unit.checkpoint
            }
            return before if before.keys() == {found.name for found in unit.files} else {}
        names = [found.name for found in unit.files if found.name in self._entries]
        return {name: self._entries[name] for name in names}

    def _work_off(self, units: list[Unit], round_: Round, tally: Tally) -> None:
        """Bring each unit, in order; commit in between what has waited for long enough."""
        todo = iter(units)

        def work() -> None:
            while taken := self._next(todo):
                try:
                    self._bring(*taken, round_, tally)
                finally:
                    self.allowance.leave(taken[1])
                if STREAMS == 1 and not tally.left:
                    self._commit_meanwhile(round_, tally)

        pool, hangs = streams(STREAMS), False
        working = [pool.submit(work) for _ in range(STREAMS)]
        while wait(working, timeout=LOOK_S).not_done:
            self._commit_meanwhile(round_, tally)
            if round_.time_is_up() or tally.hangs(round_):
                tally.waits = hangs = True  # that must not cost what is there, or comes next
                self._leave(tally)
                break
        pool.shutdown(wait=not hangs, cancel_futures=True)
        for future in working:
            if future.done() and not future.cancelled():
                future.result()

    def _leave(self, tally: Tally) -> None:
        with self._lock:
            tally.left = True

    def _next(self, todo: Iterator[Unit]) -> tuple[Unit, int] | None:
        """A unit and its place in the queue for the allowance, whoever then hashes faster."""
        with self._lock:
            unit = next(todo, None)
            if unit is None:
                return None
            return unit, self.allowance.ask(sum(found.size for found in unit.files))

    def _bring(self, unit: Unit, ticket: int, round_: Round, tally: Tally) -> None:
        if tally.left or tally.failure or round_.is_over():
            tally.waits = True
            return
        try:
            if is_own(unit):
                self._bring_own(unit, round_, tally)
            else:
                self._take(unit, self._unit(unit, round_, ticket), tally)
        except (Changed, Paused, FileNotFoundError):
            tally.waits = True
        except Refused as error:
            tally.refused.append(str(error))
        except StoreDown as error:
            tally.failure = error
        except OSError as error:  # one file that can't be read must not cost the others
            tally.unread.append(f"{unit.files[0].name}: {error.strerror or error}")
        except Withheld as error:
            self._leave_out(unit, str(error), tally)

    def _bring_own(self, unit: Unit, round_: Round, tally: Tally) -> None:
        """Both rounds bring these: one at a time, as they are now, or the older would win."""
        with self._own:
            newest = tuple(found for it in unit.files if (found := again(it)))
            if newest:
                self._take(unit, self._unit(replace(unit, files=newest), round_), tally)

    def _take(self, unit: Unit, listed: dict[str, Entry], tally: Tally) -> None:
        with self._lock:
            if tally.left:
                return
            self._withheld.pop(named(unit), None)
            self._entries = self._entries | listed

    def _leave_out(self, unit: Unit, why: str, tally: Tally) -> None:
        """Also what was committed of it before: that isn't the result any more."""
        names = {found.name for found in unit.files}
        if unit.checkpoint:
            why = f"{self.redact.text(unit.checkpoint)} (whole checkpoint: {why})"
        with self._lock:
            if tally.left:
                return
            self._withheld[named(unit)] = why
            self._entries = {name: it for name, it in self._entries.items() if name not in names}

    def _unit(self, unit: Unit, round_: Round, ticket: int = 0) -> dict[str, Entry]:
        files = unit.files
        if not (unit.marked or round_.final):
            rest = round_.now, round_.quiet_s
            files = tuple(self._blobs.at_rest(found, unit, *rest) for found in files)
        files = tuple(self._blobs.fit_to_leave(found, ends=round_.final) for found in files)
        fit = replace(unit, files=files)
        before = {} if unit.checkpoint else self._now()  # a trainer appends to no checkpoint
        listed = self._blobs.bring(
            fit, before, own=is_own(unit), stop=round_.is_over, ticket=ticket
        )
        if unit.checkpoint and not self._is_still(unit):
            raise Changed(unit.checkpoint)
        return listed

    def _is_still(self, unit: Unit) -> bool:
        """The checkpoint has the very files that were hashed: none came, went or changed."""
        now = under(self.folder, unit.checkpoint or "")
        return {f.name: f.stamp for f in now} == {f.name: f.stamp for f in unit.files}

    def _commit_meanwhile(self, round_: Round, tally: Tally) -> None:
        now = time_of(round_)
        if now - tally.committed_at >= round_.commit_s:
            tally.committed_at = now
            try:
                self._commits.commit(self._now, round_.saying, final=False, last=False)
            except StoreDown as error:
                tally.failure = error

    def _now(self) -> dict[str, Entry]:
        with self._lock:
            return dict(self._entries)

    def _complete(self, round_: Round, notes: list[str]) -> None:
        try:
            withheld = tuple(sorted(self._withheld.values()))
            reason = noted(str(round_.status.get("reason", "")), withheld)
            saying = replace(
                round_.saying,
                status=round_.status | {"reason": reason},
                left_out=tuple(self.redact.text(note) for note in notes[:NAMED]),
                withheld=withheld[:NAMED],
            )
            self._commits.complete(saying, self._blobs.seen())
        except Unverified:
            self._blobs.doubt()
            raise


def is_own(unit: Unit) -> bool:
    """Whether it's the log, the metrics or the stacks that we keep of every job."""
    return unit.files[0].name in OWN
