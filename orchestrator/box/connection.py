"""A line to S3 that says what a failure means, and takes new credentials when its own are old."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

T = TypeVar("T")
# The role's credentials last for hours; these say that a client has old ones.
STALE = {
    *("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"),
    *("InvalidAccessKeyId", "RequestExpired"),
}


class StoreDown(Exception):
    """S3 can't be reached or refused; nothing is known about what it holds."""


class Absent(StoreDown):
    """S3 answers, and has no such object."""


class Connection:
    """A client of a region's S3; `fast`: give up within seconds."""

    def __init__(self, region: str, *, fast: bool = False) -> None:
        self._region, self._fast = region, fast
        self._client: S3Client | None = None

    def call(self, work: Callable[[S3Client], T]) -> T:
        """Raises Absent, StoreDown."""
        try:
            return self.attempt(work)
        except ClientError as error:
            absent = code(error) == "NoSuchKey"
            raise (Absent if absent else StoreDown)(str(error)) from error

    def unless(self, codes: set[str], work: Callable[[S3Client], object]) -> bool:
        """False when S3 refuses with one of the codes. Raises StoreDown."""
        try:
            self.attempt(work)
        except ClientError as error:
            if code(error) in codes:
                return False
            raise StoreDown(str(error)) from error
        return True

    def attempt(self, work: Callable[[S3Client], T]) -> T:
        """Raises StoreDown, and ClientError for what S3 refuses."""
        try:
            return self._with_fresh_credentials(work)
        except (ConnectionError, HTTPClientError) as error:
            raise StoreDown(str(error)) from error  # the client is dear to make, and still good
        except BotoCoreError as error:
            # A client made before the role's credentials were there would stay without them.
            self._client = None
            raise StoreDown(str(error)) from error

    def _with_fresh_credentials(self, work: Callable[[S3Client], T]) -> T:
        """A client that is told that its credentials are old is replaced, once."""
        try:
            return work(self._connected())
        except ClientError as error:
            if code(error) not in STALE:
                raise
            self._client = None
            return work(self._connected())

    def _connected(self) -> S3Client:
        client = self._client
        if client is None:
            patience: Any = (2, 5, 1) if self._fast else (5, 60, 4)
            config = Config(
                connect_timeout=patience[0],
                read_timeout=patience[1],
                retries={"mode": "standard", "total_max_attempts": patience[2]},
                s3={"addressing_style": "path" if os.environ.get("AWS_ENDPOINT_URL") else "auto"},
            )
            session = boto3.session.Session(region_name=self._region)
            client = self._client = session.client("s3", config=config)
        return client


def code(error: BaseException | None) -> str:
    """S3's own word for a refusal; empty for anything else."""
    response = error.response if isinstance(error, ClientError) else {}
    return str(response.get("Error", {}).get("Code", ""))
