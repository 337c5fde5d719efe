"""Where a frozen job's processes stand, as far as the kernel and Python tell.

What the kernel says comes first: a signal would change it. Then each process that catches SIGUSR1
gets it: Python's faulthandler, which our programs register, writes every thread's stack to its
log at once, even while native code spins or waits.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.box.process import Place
from orchestrator.box.regular import open_regular

THREADS = 200
"""Of one process; a pool of more says nothing new."""
TEXT_BYTES = 1 << 20
PATIENCE_S = 3.0
_QUIET_S, _POLL_S = 0.3, 0.05


def keep_stacks(place: Place, pid: int, now: float, patience_s: float = PATIENCE_S) -> None:
    """Add to the job's stacks.txt; takes at most a little more than `patience_s`.

    `pid` leads the job's session. Raises OSError.
    """
    pids = list(members(pid, place))
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now))
    _append(place, f"=== {at} UTC: {len(pids)} processes\n")
    for each in pids:
        _append(place, _process(each))
    begin = _size(place.log)
    told = [each for each in pids if _ask(each)]
    if told:
        _wait_for_words(place.log, begin, patience_s)
        names = ", ".join(map(str, told))
        _append(place, f"--- said after SIGUSR1 to {names}:\n{_since(place.log, begin)}\n")


def members(session: int, place: Place) -> Iterator[int]:
    """The processes of the job: of its session, or with its mark in their environment."""
    mark = f"GPURUN_OUT={place.work / 'out'}".encode()
    for entry in sorted(Path("/proc").glob("[0-9]*"), key=lambda entry: int(entry.name)):
        try:
            state, _, _, its_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if state != "Z" and (int(its_session) == session or marked):
            yield int(entry.name)


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether it handles that signal: to any other process it might be the end."""
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        name, _, value = line.partition(":")
        if name == "SigCgt":
            return bool(int(value, 16) >> (number - 1) & 1)
    return False


def _process(pid: int) -> str:
    folder = Path(f"/proc/{pid}")
    parts = [f"--- process {pid}\n", _read(folder / "status")]
    parts += [f"{name}: {_read(folder / name)}\n" for name in ("wchan", "stack", "cmdline")]
    parts += [_thread(entry) for entry in sorted(folder.glob("task/*"))[:THREADS]]
    return "".join(parts).replace("\0", " ")[:TEXT_BYTES]


def _thread(entry: Path) -> str:
    name, wchan, syscall = (_read(entry / name).strip() for name in ("comm", "wchan", "syscall"))
    return f"thread {entry.name} {name}: wchan {wchan or '?'}, syscall {syscall or '?'}\n"


def _read(path: Path) -> str:
    """Empty where this user may not look, or nobody is left to be looked at."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _ask(pid: int) -> bool:
    if not catches(pid, signal.SIGUSR1):
        return False
    try:
        os.kill(pid, signal.SIGUSR1)
    except OSError:
        return False
    return True


def _wait_for_words(log: Path, begin: int, patience_s: float) -> None:
    """Until the log has grown and rests."""
    end = time.monotonic() + patience_s
    size, since = begin, time.monotonic()
    while time.monotonic() < end:
        if (seen := _size(log)) != size:
            size, since = seen, time.monotonic()
        if size > begin and time.monotonic() - since >= _QUIET_S:
            return
        time.sleep(_POLL_S)


def _since(log: Path, begin: int) -> str:
    with open_regular(log) as file:
        file.seek(begin)
        return file.read(TEXT_BYTES).decode("utf-8", "replace")


def _size(log: Path) -> int:
    return log.stat().st_size


def _append(place: Place, text: str) -> None:
    appending = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with open_regular(place.stacks, appending, "ab") as file:
        file.write(text.encode("utf-8", "replace"))
