"""Which attempts are missing, and playing them with several sessions at a time."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue

from agent_env.evaluation.history import Policy
from agent_env.evaluation.play import Attempt, Session, play
from agent_env.evaluation.results import Row
from agent_env.types import TaskData, ToolSpec


def missing(
    tasks: Sequence[TaskData], attempts: int, seed: int, rows: Iterable[Row]
) -> list[Attempt]:
    """The attempts without a score, the first of each task before the second of any."""
    played = {row.key: row for row in rows}
    return [
        Attempt(
            task=task,
            attempt=number,
            seed=attempt_seed(seed, task.id, number),
            tries=before.tries + 1 if before else 1,
        )
        for number in range(attempts)
        for task in tasks
        if (before := played.get((task.id, number))) is None or before.reward is None
    ]


def attempt_seed(seed: int, task_id: str, attempt: int) -> int:
    """The seed of one attempt, in [0, 2**63): the same for every policy, so that runs pair up."""
    text = f"{seed}\n{task_id}\n{attempt}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def play_all(
    todo: Sequence[Attempt],
    open_session: Callable[[], Session],
    policy: Policy,
    *,
    tools: tuple[ToolSpec, ...],
    max_calls: int,
    concurrency: int,
) -> Iterator[Row]:
    """Play them and give each row as it ends; the rest is given up when the caller stops."""
    queue: SimpleQueue[Attempt] = SimpleQueue()
    for attempt in todo:
        queue.put(attempt)
    ended: SimpleQueue[Row | BaseException] = SimpleQueue()
    stopped = threading.Event()

    def work() -> None:
        session = open_session()
        try:
            while not stopped.is_set():
                attempt = queue.get_nowait()
                ended.put(play(session, attempt, policy, tools=tools, max_calls=max_calls))
        except Empty:
            session.close()
        except BaseException as error:
            ended.put(error)

    # Daemons: who interrupts an eval doesn't wait for a model that is still thinking.
    for _ in range(min(concurrency, len(todo))):
        threading.Thread(target=work, daemon=True).start()
    try:
        for _ in todo:
            row = ended.get()
            if isinstance(row, BaseException):
                raise row
            yield row
    finally:
        stopped.set()
