"""What a test may turn: the strict rules of the local cloud by their names, and a few more."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.localcloud.rules.settings import (
    G_AND_VT_ON_DEMAND,
    G_AND_VT_SPOT,
    P_ON_DEMAND,
    STANDARD_ON_DEMAND,
)

# The spot quota that stands beside each on-demand quota.
SPOT_QUOTAS = {
    G_AND_VT_ON_DEMAND: G_AND_VT_SPOT,
    STANDARD_ON_DEMAND: "L-34B43A08",
    P_ON_DEMAND: "L-7212CCBC",
}


def _limits() -> dict[str, int]:
    on_demand = {G_AND_VT_ON_DEMAND: 256, STANDARD_ON_DEMAND: 256, P_ON_DEMAND: 0}
    return on_demand | {SPOT_QUOTAS[code]: vcpus for code, vcpus in on_demand.items()}


@dataclass(kw_only=True)
class ModelRules:
    """The defaults are a quiet account, seen at once, with room to launch."""

    linger_s: float = 0.0
    """How long the network interfaces of a terminated instance still exist."""
    profile_delay_s: float = 0.0
    """Age an instance profile must have before EC2 knows it."""
    role_delay_s: float = 0.0
    """Age a role must have before EventBridge Scheduler can assume it."""
    boot_s: float = 0.0
    shutdown_s: float = 0.0
    endpoint_linger_s: float = 0.0
    """How long a deleted VPC endpoint is still `deleting`, in its VPC's way."""
    queue_linger_s: float = 0.0
    """How long a deleted queue is still listed."""
    schedule_delay_s: float = 0.0
    """How long after its time a schedule fires; AWS promises less than 60."""
    automation_s: float = 0.0
    """How long an automation takes until it finds its instances, and ends them."""
    invisible_s: float = 0.0
    """How long EC2 shows, and finds, nothing of what was just made."""
    forget_s: float = 3600.0
    """How long EC2 still shows a terminated instance."""
    vcpu_limits: dict[str, int] = field(default_factory=_limits)
    """vCPUs that each quota code allows at once, in every region."""
    capacity: dict[tuple[str, str], int] = field(default_factory=dict)
    """(instance type, zone) -> instances alive at once; absent means plenty."""
