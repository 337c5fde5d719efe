"""The strict rules' settings, and the state of an instance as time passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

G_AND_VT_ON_DEMAND = "L-DB2E81BA"
G_AND_VT_SPOT = "L-3819A6DF"
STANDARD_ON_DEMAND = "L-1216C47A"
P_ON_DEMAND = "L-417A185B"
STATE_CODES = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}


def system_now() -> datetime:
    return datetime.now(UTC)


class InstanceLife(Protocol):
    """Who decides when an instance leaves `pending` and `shutting-down`."""

    def check_launch(self, backend: Any, instance_type: str, user_data: bytes) -> None:
        """Raise a moto client error where such an instance can't be started."""

    def launched(self, instance: Any) -> None: ...

    def ending(self, instance: Any) -> None: ...

    def settle(self, instance: Any) -> None: ...


@dataclass(kw_only=True)
class StrictRules:
    """Everything a test may turn; the defaults are a quiet account with room to launch."""

    now: Callable[[], datetime] = system_now
    linger_s: float = 0.0
    """How long the network interfaces of a terminated instance still exist."""
    profile_delay_s: float = 0.0
    """Age an instance profile must have before EC2 knows it."""
    role_delay_s: float = 0.0
    """Age a role must have before EventBridge Scheduler can assume it."""
    queue_linger_s: float = 0.0
    """How long a deleted queue is still listed."""
    endpoint_linger_s: float = 0.0
    """How long a deleted VPC endpoint is still `deleting`."""
    boot_s: float = 0.0
    shutdown_s: float = 0.0
    vcpu_limits: dict[str, int] = field(
        default_factory=lambda: {
            G_AND_VT_ON_DEMAND: 256,
            G_AND_VT_SPOT: 256,
            STANDARD_ON_DEMAND: 256,
            P_ON_DEMAND: 0,
        }
    )
    """vCPUs of running instances that each quota code allows, in every region."""
    capacity: dict[tuple[str, str], int] = field(default_factory=dict)
    """(instance type, zone) -> instances alive at once; absent means plenty."""
    life: InstanceLife = field(init=False)
    """`boot_s` and `shutdown_s` decide, until a process that boots boxes takes over."""
    client_tokens: dict[tuple[str, str, str], tuple[object, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.life = ClockLife(self)


def set_state(instance: Any, name: str) -> None:
    """Put an instance into a state of EC2's, code and name."""
    instance._state.name, instance._state.code = name, STATE_CODES[name]


class ClockLife:
    """States that follow the rules' clock: no box is behind the instance."""

    def __init__(self, rules: StrictRules) -> None:
        self._rules = rules

    def check_launch(self, backend: Any, instance_type: str, user_data: bytes) -> None:
        """No box is started, so nothing is refused."""

    def launched(self, instance: Any) -> None:
        instance.strict_launched_at = self._rules.now()
        set_state(instance, "pending")
        self.settle(instance)

    def ending(self, instance: Any) -> None:
        set_state(instance, "shutting-down")
        self.settle(instance)

    def settle(self, instance: Any) -> None:
        rules, state = self._rules, instance._state.name
        if state == "pending":
            if rules.now() >= instance.strict_launched_at + timedelta(seconds=rules.boot_s):
                set_state(instance, "running")
        elif state == "shutting-down":
            ended_at = instance.strict_ended_at + timedelta(seconds=rules.shutdown_s)
            if rules.now() >= ended_at:
                set_state(instance, "terminated")
                instance.strict_terminated_at = ended_at
