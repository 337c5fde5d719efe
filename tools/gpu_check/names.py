"""What the checks of a training are called; read by the driver, which has no packages."""

from __future__ import annotations

TITLE = {"cpu": "TRL on the CPU", "lora": "16-bit LoRA", "qlora": "4-bit QLoRA"}
CHECKS = ("config", "model", "evals", "training", "restart", "sessions")


def prefix(how: str) -> str:
    """What stands before each check of that training."""
    return f"{TITLE[how]}: "


def owed(how: str) -> list[str]:
    """The checks of one training, as the table names them."""
    return [prefix(how) + check for check in CHECKS]
