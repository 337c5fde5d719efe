"""`check`: looks at a bundle, plays it in two processes, and says what is wrong.

The bundle is played in processes of its own with different PYTHONHASHSEED: what depends on the
order of a set, on a clock or on what was played before shows as a different answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agent_env.bundle import Bundle, load_bundle
from agent_env.checking.behaviour import Probed, behaviour, differ
from agent_env.checking.finding import Checked, Finding, found
from agent_env.checking.structure import structure
from agent_env.errors import BundleError, BundleNotFound

SAMPLE = 50
TIMEOUT_S = 300.0
HASH_SEEDS = ("1", "2")


def check(ref: str | Path, *, sample: int = SAMPLE, timeout_s: float = TIMEOUT_S) -> Checked:
    """Check a bundle, of each split at most `sample` tasks spread over it.

    `timeout_s` is for each process in which they are played. Raises BundleNotFound where
    `ref` names none; a bundle that is there and can't be loaded is a finding.
    """
    try:
        bundle = load_bundle(ref)
    except BundleNotFound:
        raise
    except BundleError as error:
        return _checked(None, 0, [found("load", str(ref), str(error))])
    findings = structure(bundle, sample)
    # What can't be listed or opened can't be played either.
    if any(finding.rule in _UNPLAYABLE for finding in findings):
        return _checked(bundle, 0, findings)
    played, faults = _played(str(ref), sample, timeout_s)
    return _checked(bundle, played, [*findings, *faults])


_UNPLAYABLE = frozenset({"splits", "dead-split", "breaks"})


def _checked(bundle: Bundle | None, played: int, findings: list[Finding]) -> Checked:
    splits = () if bundle is None else tuple(getattr(bundle, "splits", ()))
    dead = any(finding.rule in ("dead-split", "splits") for finding in findings)
    return Checked(
        name=getattr(bundle, "name", ""),
        splits=len(splits),
        tasks=0 if dead or bundle is None else sum(len(bundle.tasks(name)) for name in splits),
        played=played,
        findings=tuple(findings),
    )


def _played(ref: str, sample: int, timeout_s: float) -> tuple[int, list[Finding]]:
    ran = _processes(ref, sample, HASH_SEEDS, timeout_s)
    one, other = (run.probed for run in ran)
    third = None
    if differ(one, other):
        third = _processes(ref, sample, HASH_SEEDS[:1], timeout_s)[0].probed
    ended = [fault for run in ran for fault in run.faults]
    return len(one.episodes), [*dict.fromkeys(ended), *behaviour(one, other, third)]


@dataclass(frozen=True)
class _Run:
    probed: Probed
    faults: tuple[Finding, ...] = ()


def _processes(ref: str, sample: int, seeds: tuple[str, ...], timeout_s: float) -> list[_Run]:
    """The probe under each hash seed, side by side."""
    with tempfile.TemporaryDirectory(prefix="agent-env-check-") as folder:
        files = [(Path(folder) / seed).open("w+") for seed in seeds]
        errors = [(Path(folder) / f"{seed}.err").open("w+") for seed in seeds]
        started = [
            _start(ref, sample, seed, out, error)
            for seed, out, error in zip(seeds, files, errors, strict=True)
        ]
        deadline = time.monotonic() + timeout_s
        runs = [
            _finished(process, out, error, deadline - time.monotonic(), timeout_s)
            for process, out, error in zip(started, files, errors, strict=True)
        ]
        for file in (*files, *errors):
            file.close()
        return runs


def _start(
    ref: str, sample: int, seed: str, out: IO[str], error: IO[str]
) -> subprocess.Popen[str]:
    probe = [sys.executable, "-m", "agent_env.checking.probe", ref, str(sample)]
    command = ["env", f"PYTHONHASHSEED={seed}", *probe]
    return subprocess.Popen(command, stdout=out, stderr=error, stdin=subprocess.DEVNULL, text=True)


def _finished(
    process: subprocess.Popen[str], out: IO[str], error: IO[str], left_s: float, timeout_s: float
) -> _Run:
    late = False
    try:
        process.wait(max(0.0, left_s))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        late = True
    probed = Probed.of(_lines(out))
    where = probed.unfinished or "bundle"
    if late:
        return _Run(probed, (found("hangs", where, f"it was not over after {timeout_s:g} s"),))
    if process.returncode:
        error.seek(0)
        last = (error.read().strip().splitlines() or ["no message"])[-1]
        said = f"its process ended with {process.returncode}: {last}"
        return _Run(probed, (found("crash", where, said),))
    return _Run(probed)


def _lines(out: IO[str]) -> list[dict[str, Any]]:
    """What was written whole: a killed process leaves half a line."""
    out.seek(0)
    lines = []
    for text in out:
        if text.endswith("\n"):
            lines.append(json.loads(text))
    return lines
