"""Threads: few while work is short, more when some of it hangs."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from agent_env.server.pool import Pool


def episode_threads() -> int:
    return sum(thread.name == "episode" for thread in threading.enumerate())


def test_short_work_needs_no_more_threads_than_cores() -> None:
    async def main() -> None:
        pool = Pool(core=2)
        before = episode_threads()
        results = await asyncio.gather(*(pool.submit(partial(pow, n, 2)) for n in range(500)))
        assert results == [n * n for n in range(500)]
        assert episode_threads() - before <= 2
        pool.close()

    asyncio.run(main())


def test_work_that_hangs_stalls_nothing_else() -> None:
    async def main() -> None:
        pool, release = Pool(core=1), threading.Event()
        hanging = [pool.submit(lambda: release.wait(20)) for _ in range(5)]
        async with asyncio.timeout(10):
            assert await pool.submit(lambda: "done") == "done"
        release.set()
        assert await asyncio.gather(*hanging) == [True] * 5
        pool.close()

    asyncio.run(main())


def test_what_the_work_raises_is_raised() -> None:
    async def main() -> None:
        pool = Pool(core=1)
        with pytest.raises(ZeroDivisionError):
            await pool.submit(lambda: 1 / 0)
        with pytest.raises(RuntimeError, match="SystemExit"):
            await pool.submit(lambda: exit(1))
        assert await pool.submit(lambda: 1) == 1
        pool.close()

    asyncio.run(main())
