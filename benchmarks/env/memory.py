"""What a server holds: idle, by session, and how many threads a thousand sessions make."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

from benchmarks.env import kinds
from benchmarks.env.load import ADD, players
from benchmarks.env.process import Server, cores
from benchmarks.measure import Measure

FIRST, ALL = 64, 1000
FILES_NEEDED = 4096


def measures(folder: Path) -> tuple[list[Measure], str]:
    """Idle gridsim; then a server from 64 to 1,000 open sessions that have each made a step."""
    _allow_files()
    with kinds.ours(folder, bundle="gridsim") as idle:
        idle_mb, idle_rss_mb = idle.pss_kb() / 1024, idle.rss_kb() / 1024
    with kinds.ours(folder, max_sessions=ALL) as server:
        by_session_kb, threads = asyncio.run(_held(server))
    most = 4 + cores()
    said = f"idle memory in MB: PSS {idle_mb:.0f}, RSS {idle_rss_mb:.0f}"
    return [
        Measure("idle memory (RSS, all processes)", idle_rss_mb, "MB", 70),
        Measure("memory per open session (PSS)", by_session_kb, "KB", 45),
        Measure("threads at 1,000 sessions", threads, "", most),
    ], said


async def _held(server: Server) -> tuple[float, int]:
    """KB a session, and threads at the end. The first sessions pay for what is loaded late."""
    await asyncio.gather(*(player.steps(ADD, 2) for player in await players(server, FIRST)))
    before = server.pss_kb()
    more = await players(server, ALL - FIRST)
    await asyncio.gather(*(player.steps(ADD, 2) for player in more))
    return (server.pss_kb() - before) / (ALL - FIRST), server.threads()


def _allow_files() -> None:
    """A socket is a file here and there: 1,000 of them are more than many a default."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES_NEEDED, most), most))
