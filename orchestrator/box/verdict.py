"""How a process that ended leaves its job, and whether to try again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.box.state import CUT, DONE, FAILED, RUNNING, Job

if TYPE_CHECKING:
    from collections.abc import Sequence

# Exit status by which our programs say that the job's config is wrong: a retry can't help.
WRONG_CONFIG = 2


def verdict(job: Job, exit_code: int, missing: Sequence[str] = ()) -> tuple[str, str]:
    """How a process that ended leaves its job: (outcome, reason); `running` asks for a retry.

    `exit_code` is negative after a signal, as subprocess gives it; `missing` are the declared
    result paths at which there is nothing.
    """
    if job.told:
        return CUT, job.told + (", then killed" if job.killed else "")
    if exit_code == 0 and not job.frozen:
        return (FAILED, never_made(missing)) if missing else (DONE, "")
    reason = f"killed by signal {-exit_code}" if exit_code < 0 else f"exit status {exit_code}"
    if job.frozen:
        reason = job.frozen + (", killed" if job.killed else "")
    elif exit_code == WRONG_CONFIG and job.spec.program:
        return FAILED, f"{reason}: its config is wrong"
    if job.failures < job.spec.retries:
        return RUNNING, f"{reason}; started again"
    return FAILED, reason


def never_made(missing: Sequence[str]) -> str:
    """The reason that tells of result paths that never came into being."""
    paths = f"path {missing[0]} was" if len(missing) == 1 else f"paths {', '.join(missing)} were"
    return f"result {paths} never made; kept the whole work folder instead"


def keeps_all(job: Job, outcome: str, missing: Sequence[str]) -> bool:
    """Whether to keep the whole work folder of a job: what it made may lie anywhere.

    So it is for one that failed only because something is missing, and for one that failed or was
    cut and made nothing that was declared.
    """
    if not missing:
        return False
    ended_well = outcome == FAILED and job.exit_code == 0
    return ended_well or len(missing) == len(job.spec.results)


def backoff_s(failures: int) -> float:
    """Seconds to wait after so many failures in a row: 1, 2, 4 … 30."""
    return float(min(30, 2 ** max(0, failures - 1)))
