"""What a refused AWS call means: read once, by its code, and the same everywhere.

Codes are AWS's own words; `boundary` turns what is left over into this project's errors, so that
nothing above this package ever sees a botocore exception. "Not allowed to see" is never "gone".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boto3.exceptions import Boto3Error
from botocore import exceptions as sdk

from orchestrator.aws.codes import CODES, Refusal
from orchestrator.errors import ApiError, CloudError, CredentialsError, GpurunError, QuotaError

__all__ = [
    "Refusal",
    "boundary",
    "classify",
    "code",
    "is_in_use",
    "is_missing",
    "is_not_known_yet",
    "is_unanswered",
    "missing_is_fine",
    "text",
]

_BY_CODE = {code: refusal for refusal, codes in CODES.items() for code in codes}
# What a run has made right before it launches; an image isn't, so that one is missing for good.
_JUST_MADE = frozenset(
    {"InvalidGroup.NotFound", "InvalidKeyPair.NotFound", "InvalidSubnetID.NotFound"}
    | {"NoSuchEntity"}
)
_BUSY_STATUS = (500, 502, 503, 504)
_CLOCK = frozenset(
    {"InvalidSignatureException", "RequestExpired", "RequestTimeTooSkewed"}
    | {"SignatureDoesNotMatch"}
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


def classify(error: BaseException) -> Refusal:
    """What a failed call means. Pure; anything unheard of is OTHER."""
    if isinstance(error, _NO_CREDENTIALS):
        return Refusal.AUTH
    if isinstance(error, _UNANSWERED):
        return Refusal.UNANSWERED
    if isinstance(error, sdk.ParamValidationError):
        return Refusal.MALFORMED
    if not isinstance(error, sdk.ClientError):
        return Refusal.OTHER
    return Refusal.NOT_KNOWN_YET if _is_not_known_yet(error) else _by_code(error)


def _by_code(error: sdk.ClientError) -> Refusal:
    word = code(error)
    if word in _BY_CODE:
        return _BY_CODE[word]
    if word.endswith(".NotFound"):
        return Refusal.MISSING
    if word.endswith((".Malformed", ".Duplicate")):
        return Refusal.MALFORMED
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status == 429:
        return Refusal.THROTTLED
    return Refusal.UNANSWERED if status in _BUSY_STATUS else Refusal.OTHER


def _is_not_known_yet(error: sdk.ClientError) -> bool:
    """The same codes are final elsewhere; and two services say it in their text alone."""
    word, said = code(error), text(error).lower()
    if error.operation_name == "RunInstances":
        profile = word == "InvalidParameterValue" and "iam instance profile" in said
        return profile or word in _JUST_MADE
    return word == "ValidationException" and "assume the role" in said


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
    return isinstance(error, sdk.ClientError) and _by_code(error) is Refusal.MISSING


def is_in_use(error: BaseException) -> bool:
    """A deletion that will succeed once something else is gone."""
    return classify(error) is Refusal.IN_USE


def is_unanswered(error: BaseException) -> bool:
    """No answer, or one that says to ask again: the call may or may not have had its effect."""
    return classify(error) in (Refusal.UNANSWERED, Refusal.THROTTLED)


def is_not_known_yet(error: BaseException) -> bool:
    """Ask again: what it names exists, and will be known in some seconds."""
    return classify(error) is Refusal.NOT_KNOWN_YET


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


def _refused(error: sdk.ClientError) -> GpurunError:
    what = f"{error.operation_name}: {code(error)}: {text(error)}"
    refusal = classify(error)
    if refusal is Refusal.AUTH:
        clock = "Set this machine's clock right, or renew them" if code(error) in _CLOCK else ""
        return CredentialsError(
            f"AWS refused the credentials ({what})",
            hint=f"{clock or 'Renew them'} (AWS_PROFILE, `aws sso login`) and type the command "
            "again.",
        )
    if refusal is Refusal.DENIED:
        return ApiError(
            f"These credentials may not do this ({what})",
            hint="Ask the account's owner for the permission named above.",
        )
    if refusal is Refusal.QUOTA:
        return QuotaError(
            f"The account's quota is used up ({what})",
            hint="Ask AWS for more (Service Quotas), or remove what you no longer need.",
        )
    return ApiError(
        f"AWS refused a call ({what})",
        hint="Type the command again; it goes on where it stopped.",
    )
