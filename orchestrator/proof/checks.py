"""What a proof finds out, as data: a name, a verdict, why, and how long it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from orchestrator.errors import CredentialsError, GpurunError


class Verdict(StrEnum):
    """Of one check."""

    PASS = "PASS"  # noqa: S105 - a word, no password
    FAIL = "FAIL"
    SKIP = "SKIP"


class Check(BaseModel):
    """One finding. `seconds` is what the check is about, where it is about a time."""

    model_config = ConfigDict(frozen=True)

    name: str
    verdict: Verdict
    detail: str = ""
    seconds: float | None = None

    def words(self) -> str:
        """One line for people."""
        time = "" if self.seconds is None else f"{self.seconds:.1f} s"
        return f"{self.verdict}  {self.name:<26} {time:>8}  {self.detail}".rstrip()


class ProofReport(BaseModel):
    """A proof from its first call to its last."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    cloud: str
    region: str
    account: str
    checks: tuple[Check, ...]
    left: tuple[str, ...]
    """What is still in the account, by kind and id."""
    total_usd: Decimal
    """Compute, disks and addresses by EC2's times, and all that was set aside for the rest."""
    worst_case_usd: Decimal
    cap_usd: Decimal
    seconds: float

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.verdict is Verdict.FAIL)


@dataclass
class Checks:
    """Findings in the order in which they were made; each is told at once."""

    tell: Callable[[Check], None] = lambda _: None
    found: list[Check] = field(default_factory=list)

    def add(self, check: Check) -> None:
        self.found.append(check)
        self.tell(check)

    def record(self, name: str, ok: bool, detail: str = "", seconds: float | None = None) -> None:
        verdict = Verdict.PASS if ok else Verdict.FAIL
        self.add(Check(name=name, verdict=verdict, detail=detail, seconds=seconds))

    def skip(self, name: str, why: str) -> None:
        self.add(Check(name=name, verdict=Verdict.SKIP, detail=why))

    def guard(self, name: str, look: Callable[[], None]) -> None:
        """Call a check that asks the account; a refusal is a finding, not the end of the proof.

        Raises:
            CredentialsError: none, or refused: nothing more can be found out.
        """
        try:
            look()
        except CredentialsError:
            raise
        except GpurunError as error:
            self.record(name, ok=False, detail=error.message)
