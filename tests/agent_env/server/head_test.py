"""Where a connection wants to go."""

from __future__ import annotations

import pytest

from agent_env.server.head import MAX_HEAD, Target, read_target

SESSION = Target("session", "session-1")
HTTP = Target("http")


@pytest.mark.parametrize(
    "head, target",
    [
        (b"", None),
        (b"GET /ws?session_id=session-1 HT", None),
        (b"GET /ws?session_id=session-1&open=1 HTTP/1.1\r\n", SESSION),
        (b"GET /ws?open=1&session_id=session-1 HTTP/1.1\r\nHost: a\r\n", SESSION),
        (b"GET http://a:1/ws?session_id=session-1 HTTP/1.1\r\n", SESSION),
        (b"GET /ws?session_id=../x HTTP/1.1\r\n", Target("session")),
        (b"GET /ws HTTP/1.1\r\n", Target("session")),
        (b"GET /wsx HTTP/1.1\r\n", HTTP),
        (b"POST /mcp HTTP/1.1\r\n", Target("rpc")),
        (b"GET /health HTTP/1.1\r\n", HTTP),
        (b"\x16\x03\x01\xff\r\n", HTTP),
        (b"GET [ HTTP/1.1\r\n", HTTP),
        (b"GET http://[ HTTP/1.1\r\n", HTTP),
        (b"x" * MAX_HEAD, HTTP),
    ],
)
def test_the_first_line_says_it(head: bytes, target: Target | None) -> None:
    assert read_target(head) == target
