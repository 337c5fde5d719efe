"""dstackai/dstack#2114: the credentials go while machines run, and so does all knowledge of them.

There: the backend is taken out of the configuration, and what runs there can't be listed, stopped
or even seen any more.
Here: the AWS profile is gone when the run is to be taken down. The command refuses to call it
ended, says until when the boxes live and how to end them in the console, and forgets nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator import ending, kept
from orchestrator.console.live import Progress
from orchestrator.console.terminal import make_console
from orchestrator.errors import CredentialsError
from orchestrator.run import read_ssh_secrets
from orchestrator.settings import Settings
from tests.faults.world import REGION
from tests.incidents.scene import Scene


def test_without_its_profile_a_run_is_not_forgotten_and_the_console_is_explained(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = scene.launched()
    secrets = read_ssh_secrets(runner.bucket, scene.run_id)
    kept.keep(Settings().home, runner.record, secrets)
    monkeypatch.setenv("AWS_PROFILE", "left-the-company")
    with pytest.raises(CredentialsError, match="left-the-company") as told:
        ending.end_run(scene.run_id, "aws", Progress(make_console(stderr=True)), now=True)
    assert told.value.exit_code == 6
    assert f"{runner.record.expires_at:%Y-%m-%d %H:%M:%S} UTC" in told.value.hint
    assert f"{REGION}, Instances, filter tag:gpurun:run={scene.run_id}" in told.value.hint
    assert kept.recall(Settings().home, scene.run_id) == (runner.record, secrets)
    assert len(scene.alive()) == 1


def test_on_a_machine_that_knows_nothing_of_the_run_every_region_is_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.launched()
    monkeypatch.setenv("AWS_PROFILE", "left-the-company")
    with pytest.raises(CredentialsError) as told:
        ending.end_run(scene.run_id, "aws", Progress(make_console(stderr=True)), now=True)
    assert f"each region, Instances, filter tag:gpurun:run={scene.run_id}" in told.value.hint


def test_with_credentials_again_the_same_command_ends_everything(
    scene: Scene, down: Callable[[], None]
) -> None:
    scene.launched()
    scene.refused |= dict.fromkeys(
        ("describe_instances", "terminate_instances", "list_buckets"), "AuthFailure"
    )
    with pytest.raises(CredentialsError, match="AuthFailure") as told:
        down()
    assert "EC2 console" in told.value.hint
    scene.refused.clear()
    down()
    assert scene.alive() == []
    assert scene.left() == []
