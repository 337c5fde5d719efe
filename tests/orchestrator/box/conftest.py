"""One S3 for the folder's tests, a bucket that is empty for each, and a rig of a box."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .rig import BUCKET, Cloud, Rig, box_spec
from .valve import ValveCloud


@pytest.fixture(scope="package")
def shared_cloud() -> Iterator[Cloud]:
    cloud = Cloud.start()
    yield cloud
    cloud.unplug()


@pytest.fixture
def cloud(shared_cloud: Cloud) -> Iterator[Cloud]:
    s3 = shared_cloud.s3
    s3.create_bucket(Bucket=BUCKET)
    yield shared_cloud
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    for page in pages:
        for item in page.get("Contents", []):
            s3.delete_object(Bucket=BUCKET, Key=item["Key"])
    s3.delete_bucket(Bucket=BUCKET)


@pytest.fixture
def valves(cloud: Cloud) -> Iterator[ValveCloud]:
    """The same bucket behind a valve."""
    valves = ValveCloud.start()
    yield valves
    valves.unplug()


@pytest.fixture
def rig(tmp_path: Path, cloud: Cloud) -> Iterator[Rig]:
    root = tmp_path / "box"
    root.mkdir()
    rig = Rig(root, cloud, box_spec())
    yield rig
    rig.clean_up()
