"""Which account, which region, which endpoint: the one place where boto3 clients are made.

There is one code path. `--cloud local` only sets the endpoint and credentials that are worth
nothing anywhere else, so that no setting of a person can send a rehearsal to a real account.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import boto3
import botocore.session
from botocore.config import Config

from orchestrator.aws.refusals import boundary
from orchestrator.aws.waits import PROPAGATION_S, Patience
from orchestrator.errors import CloudError

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_iam.client import IAMClient
    from mypy_boto3_lambda.client import LambdaClient
    from mypy_boto3_logs.client import CloudWatchLogsClient
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_scheduler.client import EventBridgeSchedulerClient
    from mypy_boto3_secretsmanager.client import SecretsManagerClient
    from mypy_boto3_service_quotas.client import ServiceQuotasClient
    from mypy_boto3_sqs.client import SQSClient
    from mypy_boto3_ssm.client import SSMClient
    from mypy_boto3_sts.client import STSClient

    from orchestrator.settings import Settings

_CONNECT_S = 5
_READ_S = 30
# RunInstances alone is slow to answer, and its retries must keep their ClientToken in our hands.
_FAST_READ_S = 60
_ATTEMPTS = 6
# Where to ask for an account's buckets when nothing names a region: any will do.
_ANY_REGION = "us-east-1"


@dataclass(frozen=True)
class Session:
    """An account in a region, and how patiently to wait there. Safe to share between threads."""

    cloud: str
    """`local` or `aws`."""
    region: str
    account: str
    partition: str = "aws"
    endpoint_url: str | None = None
    patience: Patience = field(default_factory=Patience)
    boto: boto3.Session = field(default_factory=boto3.Session, repr=False, compare=False)
    clients: dict[tuple[str, str, bool], Any] = field(
        default_factory=dict, repr=False, compare=False
    )
    making: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def shows_within_s(self) -> float:
        """How long what was made may not be listed; the local cloud lists everything at once."""
        return 0.0 if self.cloud == "local" else PROPAGATION_S

    @overload
    def client(self, service: Literal["ec2"], *, fast: bool = False) -> EC2Client: ...
    @overload
    def client(self, service: Literal["iam"], *, fast: bool = False) -> IAMClient: ...
    @overload
    def client(self, service: Literal["lambda"], *, fast: bool = False) -> LambdaClient: ...
    @overload
    def client(self, service: Literal["logs"], *, fast: bool = False) -> CloudWatchLogsClient: ...
    @overload
    def client(self, service: Literal["s3"], *, fast: bool = False) -> S3Client: ...
    @overload
    def client(
        self, service: Literal["scheduler"], *, fast: bool = False
    ) -> EventBridgeSchedulerClient: ...
    @overload
    def client(
        self, service: Literal["secretsmanager"], *, fast: bool = False
    ) -> SecretsManagerClient: ...
    @overload
    def client(
        self, service: Literal["service-quotas"], *, fast: bool = False
    ) -> ServiceQuotasClient: ...
    @overload
    def client(self, service: Literal["sqs"], *, fast: bool = False) -> SQSClient: ...
    @overload
    def client(self, service: Literal["ssm"], *, fast: bool = False) -> SSMClient: ...
    @overload
    def client(self, service: Literal["sts"], *, fast: bool = False) -> STSClient: ...
    def client(self, service: Any, *, fast: bool = False) -> Any:
        """A client made once per service; a `fast` one tries once and leaves retries to us."""
        with self.making:
            key = (service, self.region, fast)
            if key not in self.clients:
                self.clients[key] = self.boto.client(
                    service,
                    region_name=self.region,
                    endpoint_url=self.endpoint_url,
                    config=_config(fast, local=self.cloud == "local"),
                )
            return self.clients[key]

    def in_region(self, region: str) -> Session:
        """The same account elsewhere."""
        return replace(self, region=region)

    def within(self, timeout_s: float) -> Session:
        """The same, with all waits together ending in `timeout_s` from now."""
        return replace(self, patience=self.patience.within(timeout_s))


@boundary()
def open_session(settings: Settings, cloud: str, region: str | None) -> Session:
    """Ask who we are, so that wrong credentials show before anything is created.

    Without a region: the one that the settings, the local cloud or the AWS profile names.

    Raises:
        CredentialsError: none, or refused.
        CloudError: the local cloud isn't running.
    """
    session = _local(settings, region) if cloud == "local" else _real(settings, region)
    identity = session.client("sts").get_caller_identity()
    partition = identity["Arn"].split(":")[1]
    return replace(session, account=identity["Account"], partition=partition)


def _local(settings: Settings, region: str | None) -> Session:
    state = settings.cloud_state()
    if state is None:
        raise CloudError("The local cloud isn't running.", hint="Start it: gpurun cloud start")
    return Session("local", region or state.region, "", endpoint_url=state.url, boto=_nobody())


def _real(settings: Settings, region: str | None) -> Session:
    boto = boto3.Session(region_name=region or settings.region)
    return Session("aws", boto.region_name or _ANY_REGION, "", boto=boto)


def _nobody() -> boto3.Session:
    """Credentials and a profile of our own: the person's files are not looked at."""
    core = botocore.session.Session(session_vars={"profile": (None, None, None, None)})
    return boto3.Session(
        aws_access_key_id="local",
        aws_secret_access_key="local",  # noqa: S106 - the local cloud takes any
        botocore_session=core,
    )


def _config(fast: bool, *, local: bool) -> Config:
    return Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_FAST_READ_S if fast else _READ_S,
        retries={"mode": "standard", "total_max_attempts": 1 if fast else _ATTEMPTS},
        tcp_keepalive=True,
        max_pool_connections=20,
        # A proxy set for the internet must not be asked for a loopback address.
        proxies={} if local else None,
        s3={"addressing_style": "path"} if local else None,
    )
