"""Every way the orchestrator can fail, one class per thing a person would do differently.

GpurunError
├── RunbookError          3  the runbook is wrong; nothing was created
├── OverCap               4  the worst case doesn't fit under the cap; nothing was created
├── CatalogError          5  no price, a stale price, or an instance the region doesn't offer
├── CredentialsError      6  no or refused credentials
├── CapacityError         7  no zone, fallback or region has the instance now
├── QuotaError            8  the account's quota is too small
├── RunNotFound           9  no such run in any bucket of this account
├── BucketError          10  the results bucket isn't ours
├── JobsFailed           11  the run ended; at least one job didn't
├── ResultsPartial       12  verified what there is, but not every job is complete
├── ResultsMissing       13  nothing was committed
├── TeardownError        14  alarm: something is left in the account
├── CloudError           15  the local cloud isn't there or doesn't answer
├── RemoteError          16  SSH to a box failed
├── NotConfirmed         17  money would be spent and nobody said yes
├── ExpectationMissed    18  every job ended, but a result lies outside what the runbook expects
├── LaunchError          19  EC2 refused the launch for a reason another zone can't cure
├── ResultsCorrupt       20  bytes in the bucket don't match their manifest
├── ApiError             21  AWS refused a call or doesn't answer; what exists is still tagged
├── RunDamaged           22  the run's record or log in the bucket can't be read
├── FolderError          23  a folder of this machine can't take what is to be written
├── BudgetError          24  no such budget, or its cap would be below what it has let in
├── SecretError          25  a secret can't be read; nothing was created
├── ProofFailed          26  the kill-proof found something that isn't as promised
└── ClockWrong           27  this machine's clock isn't AWS's; nothing was launched
"""

from __future__ import annotations

from typing import ClassVar


class GpurunError(Exception):
    """What happened, and the command to type next (`hint`)."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class RunbookError(GpurunError):
    """The runbook is wrong: file, line, field and the fix are in the message."""

    exit_code = 3


class OverCap(GpurunError):
    """The worst case is more than the cap; refused before the first call."""

    exit_code = 4


class CatalogError(GpurunError):
    """No price, a stale price, or an instance that the region doesn't offer."""

    exit_code = 5


class CredentialsError(GpurunError):
    """AWS credentials are missing, expired or refused."""

    exit_code = 6


class CapacityError(GpurunError):
    """Neither a zone nor a fallback has the instance now."""

    exit_code = 7


class QuotaError(GpurunError):
    """The account's vCPU quota is smaller than the plan needs."""

    exit_code = 8


class RunNotFound(GpurunError):
    """No bucket of this account holds a run of that id."""

    exit_code = 9


class BucketError(GpurunError):
    """The results bucket belongs to someone else or can't be used."""

    exit_code = 10


class JobsFailed(GpurunError):
    """The run is over and cleaned up, but at least one job didn't finish."""

    exit_code = 11


class ResultsPartial(GpurunError):
    """Every byte there is was verified, but not every job is complete."""

    exit_code = 12


class ResultsMissing(GpurunError):
    """No job has committed a manifest."""

    exit_code = 13


class TeardownError(GpurunError):
    """Alarm: something with the run's tag is left; the message lists it by id."""

    exit_code = 14


class CloudError(GpurunError):
    """The local cloud isn't running or doesn't answer."""

    exit_code = 15


class RemoteError(GpurunError):
    """SSH to a box failed; results don't depend on it."""

    exit_code = 16


class NotConfirmed(GpurunError):
    """Money would be spent, or work lost, and nobody said yes."""

    exit_code = 17


class ExpectationMissed(GpurunError):
    """Every job ended, but a number lies outside what the runbook expects."""

    exit_code = 18


class LaunchError(GpurunError):
    """EC2 refused the launch for a reason that another zone can't cure."""

    exit_code = 19
    used_up = False
    """This attempt was launched before and has ended: the next one may be launched."""


class ResultsCorrupt(GpurunError):
    """Bytes in the bucket don't match the manifest that names them."""

    exit_code = 20


class ApiError(GpurunError):
    """AWS refused a call or didn't answer; the same command goes on where it stopped."""

    exit_code = 21


class RunDamaged(GpurunError):
    """The run's record or log in the bucket can't be read; `down` needs neither."""

    exit_code = 22


class FolderError(GpurunError):
    """A folder of this machine can't take results or a report; they are safe in the bucket."""

    exit_code = 23


class BudgetError(GpurunError):
    """A shared budget doesn't exist, can't be read, or can't have the cap that was asked for."""

    exit_code = 24


class SecretError(GpurunError):
    """A secret that the runbook names can't be read where it is said to be kept."""

    exit_code = 25


class ProofFailed(GpurunError):
    """A check of the kill-proof failed; what it had created is gone, or listed."""

    exit_code = 26


class ClockWrong(GpurunError):
    """This machine's clock and AWS's are more than a minute apart: no deadline would hold."""

    exit_code = 27
