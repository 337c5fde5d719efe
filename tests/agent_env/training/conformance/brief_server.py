"""The env server that keeps a session's place for one second after its connection broke."""

from __future__ import annotations

from dataclasses import replace

from agent_env.server.__main__ import main
from agent_env.server.sessions import Sessions, Times

BRIEFLY_S = 1.0


def _hold_briefly() -> None:
    """Change the times that a server has where nobody gives it others."""
    given = Sessions.__init__.__defaults__ or ()
    brief = [replace(it, hold_s=BRIEFLY_S) if isinstance(it, Times) else it for it in given]
    assert brief != list(given)
    Sessions.__init__.__defaults__ = tuple(brief)


if __name__ == "__main__":
    _hold_briefly()
    main()
