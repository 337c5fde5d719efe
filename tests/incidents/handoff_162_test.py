"""handoff#162: a 22-hour job, expired credentials at the last push, and nothing is kept.

There: credentials are read once at the start. Hours later the final upload is refused with
ExpiredToken, and the machine ends with everything on it.
Here: a box has no keys but its role's, from a metadata service that gives new ones each hour; S3
refuses those of the hour before. An agent's one store lives through seven such hours, and its
final push works, with keys of that hour.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.incidents.desks import cloud, shared_cloud, valve_desk, valves
from tests.orchestrator.box.desk import Desk
from tests.orchestrator.box.valve import Ask, ValveCloud

__all__ = ["cloud", "shared_cloud", "valve_desk", "valves"]

HOURS = 7


class Role(ThreadingHTTPServer):
    """The instance's credentials, others in each hour."""

    hour = 0

    @property
    def key(self) -> str:
        return f"ASIAHOUR{self.hour:012d}"

    @property
    def credentials(self) -> str:
        until = datetime.now(UTC) + timedelta(hours=1)
        said = {"Code": "Success", "AccessKeyId": self.key, "SecretAccessKey": "s", "Token": "t"}
        return json.dumps(said | {"Expiration": f"{until:%Y-%m-%dT%H:%M:%SZ}"})


class Answers(BaseHTTPRequestHandler):
    server: Role

    def do_PUT(self) -> None:
        self._answer("token")

    def do_GET(self) -> None:
        self._answer("role" if self.path.endswith("/") else self.server.credentials)

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("X-aws-ec2-metadata-token-ttl-seconds", "300")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def role(monkeypatch: pytest.MonkeyPatch) -> Iterator[Role]:
    server = Role(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.shutdown()
    server.server_close()


def test_the_final_push_of_the_seventh_hour_works(
    valve_desk: Desk, valves: ValveCloud, role: Role
) -> None:
    desk, used = valve_desk, set[str]()

    def is_old(ask: Ask) -> bool:
        key = ask["HTTP_AUTHORIZATION"].partition("Credential=")[2].partition("/")[0]
        used.add(key)
        return bool(key != role.key)

    with valves.valve.refuse(is_old, "ExpiredToken", 400):
        for role.hour in range(HOURS):
            desk.write(f"out/of-hour-{role.hour}", b"%d" % role.hour)
            assert desk.sync().seq == role.hour + 1
        role.hour = HOURS
        desk.write("out/model", b"22 hours of work")
        assert desk.final().whole
    assert desk.complete()["state"] == "done"
    assert desk.blob(HOURS + 1, "out/model") == b"22 hours of work"
    assert used == {f"ASIAHOUR{hour:012d}" for hour in range(HOURS + 1)}
