"""What the services have in common: the account, the region they are asked in, and who asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.faults.cloud.account import Account, Region

Tags = dict[str, str]


class Service:
    """Public methods are operations, by boto3's names and parameters."""

    def __init__(self, account: Account, region: str, caller: str) -> None:
        self._account, self._caller = account, caller
        self._region: Region = account.region(region)
        self._rules = account.rules

    @property
    def _from_box(self) -> bool:
        return self._caller.startswith("box:")


def tags_of(specifications: Iterable[Any], kind: str) -> Tags:
    """The tags that `TagSpecifications` asks for on a kind of thing."""
    return {
        tag["Key"]: tag["Value"]
        for spec in specifications
        if spec["ResourceType"] == kind
        for tag in spec["Tags"]
    }


def tag_map(tags: Iterable[Any]) -> Tags:
    return {tag["Key"]: tag["Value"] for tag in tags}
