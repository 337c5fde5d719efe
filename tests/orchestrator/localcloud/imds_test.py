"""The metadata service by itself: token sessions, their end, and the shape of the tree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.localcloud.imds import Metadata, MetadataService, look_up

TTL, TOKEN = "x-aws-ec2-metadata-token-ttl-seconds", "x-aws-ec2-metadata-token"
TREE = {
    "/latest/meta-data/instance-id": b"i-1",
    "/latest/meta-data/placement/region": b"us-east-1",
    "/latest/meta-data/placement/availability-zone": b"us-east-1a",
    "/latest/meta-data/tags/instance/gpurun:run": b"r1",
}
ID = "/latest/meta-data/instance-id"


class Service(MetadataService):
    """A service whose clock and options a test turns."""

    def __init__(self, **options: bool) -> None:
        self.time = datetime(2026, 12, 1, tzinfo=UTC)
        super().__init__(lambda: Metadata(tree=TREE, **options), lambda: self.time)

    def token(self, ttl: int = 60) -> str:
        return self.answer("PUT", "/latest/api/token", {TTL: str(ttl)})[1].decode()

    def status(self, path: str = ID, **headers: str) -> int:
        found = self.answer("GET", path, {k.replace("_", "-"): v for k, v in headers.items()})
        return found[0].value

    def with_token(self, token: str, path: str = ID) -> int:
        return self.answer("GET", path, {TOKEN: token})[0].value


def test_nothing_is_read_without_a_token_of_this_service() -> None:
    service = Service()
    assert service.status() == 401
    assert service.with_token("guess") == 401
    assert service.with_token(service.token()) == 200


def test_a_token_ends_when_it_said_it_would() -> None:
    service = Service()
    token = service.token(ttl=60)
    service.time += timedelta(seconds=59)
    assert service.with_token(token) == 200
    service.time += timedelta(seconds=1)
    assert service.with_token(token) == 401


@pytest.mark.parametrize("ttl", ["", "0", "21601", "-1", "a while"])
def test_a_token_lives_between_a_second_and_six_hours(ttl: str) -> None:
    assert Service().answer("PUT", "/latest/api/token", {TTL: ttl})[0].value == 400


def test_version_one_works_only_where_tokens_are_optional() -> None:
    assert Service(tokens_required=False).status() == 200


def test_a_disabled_service_refuses_everything() -> None:
    assert Service(enabled=False).answer("PUT", "/latest/api/token", {TTL: "60"})[0].value == 403


def test_what_isnt_there_isnt_found_and_a_spot_notice_never_is() -> None:
    service = Service()
    token = service.token()
    assert service.with_token(token, "/latest/meta-data/spot/instance-action") == 404
    assert service.with_token(token, "/") == 200


@pytest.mark.parametrize(
    "path,names",
    [
        ("/latest/meta-data/", "instance-id\nplacement/\ntags/"),
        ("/latest/meta-data/placement", "availability-zone\nregion"),
        ("/latest/meta-data/tags/instance/", "gpurun:run"),
        ("/latest/meta-data/tags/instance/gpurun%3Arun", "r1"),
    ],
)
def test_a_folder_lists_its_names(path: str, names: str) -> None:
    assert (look_up(TREE, path) or b"").decode() == names
