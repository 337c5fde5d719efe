"""What to say of a name that isn't known: the nearest that is, and which there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 12


def nearest(name: str, known: Iterable[str], *, listed: str = "there are") -> str:
    """`did you mean 'eval'? there are: train, eval`, without the question where none is near."""
    names = list(known)
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{question(name, names)}{listed}: {', '.join(names[:_MOST]) or 'none'}{more}"


def question(name: str, known: Iterable[str]) -> str:
    """`did you mean 'eval'? `, or nothing where none is near."""
    close = difflib.get_close_matches(name[:64], list(known), n=1)
    return f"did you mean {close[0]!r}? " if close else ""
