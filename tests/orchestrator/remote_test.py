"""SSH that is blocked costs a bounded wait and a clear error; no run's success needs it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from orchestrator.errors import RemoteError
from orchestrator.remote import Remote, new_key_pair
from tests.faults import life
from tests.faults.life import live
from tests.faults.promises import breaches
from tests.faults.strikes import Strikes
from tests.faults.world import World


@pytest.fixture
def port() -> Iterator[int]:
    """Where connections are taken and nobody ever says a word, as behind a firewall that drops."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=8)) as server:
        yield server.getsockname()[1]


def remote(port: int, boot_s: float = 0.0) -> Remote:
    keys = new_key_pair("test")
    return Remote("127.0.0.1", port, keys.private, keys.public, boot_s=boot_s)


def test_a_port_that_refuses_is_told_by_its_address(port: int) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        closed = server.getsockname()[1]
    with pytest.raises(RemoteError, match=f"127.0.0.1:{closed}"):
        remote(closed).run("true")


def test_a_port_that_never_answers_is_given_up_within_seconds(port: int) -> None:
    with pytest.raises(RemoteError, match=f"127.0.0.1:{port}"):
        remote(port).run("true")


def test_a_run_whose_own_address_nobody_knows_opens_no_door_and_keeps_its_promises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(Strikes())
    monkeypatch.setattr(life, "ADDRESS", None)
    try:
        lived = live(world)
        assert breaches(lived) == []
        assert lived.record
        assert lived.record.ssh_cidr is None
    finally:
        world.close()
