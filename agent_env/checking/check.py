"""`check`: looks at a bundle, plays it in two processes, and says what is wrong.

Only other processes load the bundle, with different PYTHONHASHSEED and another clock: what depends
on the order of a set, on a clock or on what was played before shows as a different answer, and
what never ends or ends its process doesn't take the check along.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_env.checking.behaviour import Probed, behaviour, differ
from agent_env.checking.finding import Checked, Finding, found
from agent_env.checking.watch import STEP_S, Progress, Setting, Watched, watched

SAMPLE = 50
TIMEOUT_S = 300.0

PAIR = (Setting("1", ahead=False), Setting("2", ahead=True))
OTHER_CLOCK = Setting("1", ahead=True)
"""What still answers as the first does, and not as the second, depends on the hash seed."""


def check(
    ref: str | Path,
    *,
    sample: int = SAMPLE,
    timeout_s: float = TIMEOUT_S,
    step_s: float = STEP_S,
    progress: Progress | None = None,
) -> Checked:
    """Check a bundle, of each split at most `sample` tasks spread over it.

    `timeout_s` is for each process in which they are played, `step_s` for a single step in it.
    Raises BundleNotFound where `ref` names none; a bundle that is there and can't be loaded is a
    finding.
    """

    with TemporaryDirectory(prefix="agent-env-check-") as folder:

        def run(*settings: Setting) -> list[Watched]:
            limits = {"timeout_s": timeout_s, "step_s": step_s}
            return watched(str(ref), sample, settings, Path(folder), **limits, progress=progress)

        runs = run(*PAIR)
        one, other = (Probed.of(each.lines) for each in runs)
        ends = [fault for each in runs for fault in _end(each)]
        third = Probed.of(run(OTHER_CLOCK)[0].lines) if differ(one, other) else None
    findings = [*one.findings, *ends, *behaviour(one, other, third)]
    return Checked(
        name=one.name,
        splits=one.splits,
        tasks=one.count,
        played=len(one.episodes),
        findings=tuple(dict.fromkeys(findings)),
    )


def _end(run: Watched) -> Iterator[Finding]:
    """What is wrong with how a process ended."""
    where = run.task or "bundle"
    if run.late:
        yield found("hangs", where, run.late)
    elif code := run.process.returncode:
        said = f"its process ended with {code} at {run.at}: {run.last_words}"
        yield found("crash", where, said)
