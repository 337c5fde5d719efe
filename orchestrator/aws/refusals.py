"""What a refused AWS call means, by its code: gone, in use, no capacity, no quota, not allowed.

Codes are AWS's own words; `boundary` turns what is left over into this project's errors, so that
nothing above this package ever sees a botocore exception. "Not allowed to see" is never "gone".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boto3.exceptions import Boto3Error
from botocore import exceptions as sdk

from orchestrator.errors import ApiError, CloudError, CredentialsError

CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "Unsupported",
        "InstanceTypeNotSupported",
    }
)
QUOTA = frozenset({"VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded"})
AUTH = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidToken",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    }
)
DENIED = frozenset({"403", "AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
IN_USE = frozenset(
    {
        "DependencyViolation",
        "InvalidNetworkInterface.InUse",
        "VolumeInUse",
        "IncorrectState",
        "DeleteConflict",
        "ConcurrentModification",
        "ResourceInUse",
    }
)
TRANSIENT = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "Unavailable",
    }
)
GONE = frozenset(
    {
        "404",
        "Gateway.NotAttached",
        "NoSuchBucket",
        "NoSuchEntity",
        "NoSuchKey",
        "ParameterNotFound",
        "ResourceNotFoundException",
    }
)

_NO_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.CredentialRetrievalError,
    sdk.ProfileNotFound,
    sdk.TokenRetrievalError,
    sdk.SSOError,
    sdk.ConfigParseError,
)
_UNANSWERED = (sdk.HTTPClientError, sdk.ConnectionError)


def code(error: BaseException) -> str:
    """AWS's error code, or an empty string for anything that isn't an answer of AWS."""
    if not isinstance(error, sdk.ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def text(error: BaseException) -> str:
    """AWS's message without botocore's preamble."""
    if not isinstance(error, sdk.ClientError):
        return str(error)
    return str(error.response.get("Error", {}).get("Message", "") or error)


def is_missing(error: BaseException) -> bool:
    """The thing named isn't there: success for a deletion, "not seen yet" right after creation."""
    return code(error).endswith(".NotFound") or code(error) in GONE


def is_in_use(error: BaseException) -> bool:
    """A deletion that will succeed once something else is gone."""
    return code(error) in IN_USE


def is_unanswered(error: BaseException) -> bool:
    """No answer, or one that says to ask again: the call may or may not have had its effect."""
    if isinstance(error, _UNANSWERED):
        return True
    if not isinstance(error, sdk.ClientError) or code(error) in CAPACITY:
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code(error) in TRANSIENT or status in (429, 500, 502, 503, 504)


@contextmanager
def missing_is_fine() -> Iterator[None]:
    """For deletions: what isn't there needs no deleting."""
    try:
        yield
    except Exception as error:
        if not is_missing(error):
            raise


@contextmanager
def boundary() -> Iterator[None]:
    """Turn botocore's errors into ours; also usable as a decorator.

    Raises:
        CredentialsError: no credentials, or AWS refused them.
        CloudError: the local cloud doesn't answer.
        ApiError: AWS refused or didn't answer for any other reason.
    """
    try:
        yield
    except _NO_CREDENTIALS as error:
        raise CredentialsError(
            f"No usable AWS credentials: {error}",
            hint="Set AWS_PROFILE, or run `aws configure` or `aws sso login`.",
        ) from error
    except sdk.ClientError as error:
        raise _refused(error) from error
    except Boto3Error as error:
        # A transfer hides the answer of AWS in its own error's context.
        inner = error.__context__
        raise (
            _refused(inner) if isinstance(inner, sdk.ClientError) else _unanswered(error)
        ) from error
    except sdk.BotoCoreError as error:
        raise _unanswered(error) from error


def _unanswered(error: Exception) -> ApiError | CloudError:
    if "://127.0.0.1" in str(error) or "://localhost" in str(error):
        return CloudError(
            f"The local cloud doesn't answer: {error}", hint="Start it: gpurun cloud start"
        )
    return ApiError(
        f"AWS doesn't answer: {error}",
        hint="Check the network and type the command again; it goes on where it stopped.",
    )


def _refused(error: sdk.ClientError) -> CredentialsError | ApiError:
    what = f"{error.operation_name}: {code(error)}: {text(error)}"
    if code(error) in AUTH:
        return CredentialsError(
            f"AWS refused the credentials ({what})",
            hint="Renew them (AWS_PROFILE, `aws sso login`) and type the command again.",
        )
    if code(error) in DENIED:
        return ApiError(
            f"These credentials may not do this ({what})",
            hint="Ask the account's owner for the permission named above.",
        )
    return ApiError(
        f"AWS refused a call ({what})",
        hint="Type the command again; it goes on where it stopped.",
    )
