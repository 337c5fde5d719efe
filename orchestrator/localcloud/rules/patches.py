"""Replacing methods of moto's classes, and putting every one of them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Patches:
    """Methods replaced so far; `undo` restores them in reverse order."""

    def __init__(self) -> None:
        self._stock: list[tuple[type, str, Any]] = []

    def replace(self, owner: type, name: str, make: Callable[[Any], Any]) -> None:
        """Set `owner.name` to what `make(stock method)` returns."""
        stock = owner.__dict__.get(name, getattr(owner, name, None))
        self._stock.append((owner, name, owner.__dict__.get(name)))
        setattr(owner, name, make(stock))

    def undo(self) -> None:
        while self._stock:
            owner, name, stock = self._stock.pop()
            if stock is None:
                delattr(owner, name)  # it was inherited, or wasn't there
            else:
                setattr(owner, name, stock)
