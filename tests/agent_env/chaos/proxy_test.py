"""The proxy cuts as a broken network does, or it tests nothing."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import pytest

from tests.agent_env.chaos.proxy import Proxy


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(10)
        yield made


def joined(proxy: Proxy, listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    """A connection through the proxy: the client's end and the server's."""
    client = socket.create_connection(("127.0.0.1", proxy.port), 10)
    server, _ = listener.accept()
    server.settimeout(10)
    client.sendall(b"ping")
    assert server.recv(4) == b"ping"
    server.sendall(b"pong")
    assert client.recv(4) == b"pong"
    return client, server


def test_a_cut_resets_both_sides_and_leaves_the_other_connections(
    listener: socket.socket,
) -> None:
    with Proxy(listener.getsockname()[1]) as proxy:
        pairs = [joined(proxy, listener) for _ in range(2)]
        proxy.cut(1, random.Random(0))
        assert proxy.cuts == 1
        (cut,) = [pair for pair in pairs if _is_reset(pair[0])]
        assert _is_reset(cut[1])
        ((client, server),) = [pair for pair in pairs if pair is not cut]
        client.sendall(b"more")
        assert server.recv(4) == b"more"
        for end in (*cut, client, server):
            end.close()


def test_no_more_is_cut_than_there_is(listener: socket.socket) -> None:
    with Proxy(listener.getsockname()[1]) as proxy:
        ends = joined(proxy, listener)
        proxy.cut(5, random.Random(0))
        assert proxy.cuts == 1
        for end in ends:
            end.close()


def test_a_connection_to_a_server_that_is_away_breaks_at_once(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    with Proxy(port) as proxy, socket.create_connection(("127.0.0.1", proxy.port), 10) as client:
        assert _is_reset(client)


def _is_reset(end: socket.socket) -> bool:
    """False while it is open; a goodbye is not a reset."""
    end.settimeout(1.0)
    try:
        assert end.recv(1) == b"", "nothing was sent"
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return False
