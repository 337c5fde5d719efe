"""The same code against a server on the loopback: the path of `--cloud local`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from orchestrator.aws import keys, network, role
from orchestrator.aws.bucket import ensure_bucket, find_run_bucket
from orchestrator.aws.images import resolve_ami
from orchestrator.aws.session import Session, open_session
from orchestrator.aws.stack import leftovers, teardown
from orchestrator.errors import RunNotFound
from orchestrator.localcloud.strict import StrictRules
from orchestrator.settings import CloudState, Settings
from tests.fake_clock import FakeClock

from .account import IMAGE, KEY, REGION, RUN, ZONES, Stack, tags_of


@pytest.fixture
def local(rules: StrictRules, clock: FakeClock, tmp_path: Path) -> Iterator[Session]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    state = CloudState(
        pid=1, url=f"http://{host}:{port}", driver="process", started_at=clock.now(), region=REGION
    )
    (tmp_path / "cloud").mkdir()
    (tmp_path / "cloud" / "state.json").write_text(state.model_dump_json())
    yield open_session(Settings(home=tmp_path), "local", None)
    server.stop()


def test_a_run_is_built_and_torn_down_over_http(
    local: Session, clock: FakeClock, tmp_path: Path
) -> None:
    tags = tags_of(RUN, local, clock)
    bucket = ensure_bucket(local)
    file = tmp_path / "payload"
    file.write_bytes(b"x" * 9_000_000)
    bucket.put_file(f"runs/{RUN}/payload", file)
    bucket.put(f"runs/{RUN}/run.json", b"{}", if_absent=True)
    assert not bucket.put(f"runs/{RUN}/run.json", b"other", if_absent=True)
    net = network.ensure_network(local, tags, ZONES, "127.0.0.1/32")
    role.ensure_box_role(local, tags, bucket.name)
    keys.ensure_key_pair(local, tags, KEY)
    stack = Stack(local, tags, resolve_ami(local, IMAGE), net)
    stack.arm(stack.launch())
    assert teardown(local, RUN, clock.now()) == []
    assert leftovers(local) == []
    found = find_run_bucket(local, RUN)
    assert sum(len(chunk) for chunk in found.read_range(f"runs/{RUN}/payload", 5)) == 8_999_995


def test_a_run_that_the_local_cloud_does_not_know_is_not_looked_for_in_an_account(
    local: Session,
) -> None:
    with pytest.raises(RunNotFound, match="cloud's runs end with it") as told:
        find_run_bucket(local, RUN)
    assert "AWS_PROFILE" not in str(told.value)
