"""AWS's error codes, sorted by what there is to do about them; the only list of them.

From the EC2 API reference ("Error codes"), the common errors of the query APIs, S3's and the
scheduler's own lists, and botocore's retry handler.
"""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    """Why a call failed; one member per thing to do about it."""

    CAPACITY = "capacity"
    """Full here and now: another zone, type or region may have room."""
    QUOTA = "quota"
    """The account may not have more of it: the same call will not succeed either."""
    AUTH = "auth"
    """Who we are isn't accepted: nothing that follows will be, nothing seen says "gone"."""
    DENIED = "denied"
    """We are known, and may not do this."""
    THROTTLED = "throttled"
    """Too many calls; it had no effect. Ask again later."""
    UNANSWERED = "unanswered"
    """The call may or may not have had its effect."""
    MISSING = "missing"
    """The thing named isn't there."""
    IN_USE = "in use"
    """Something else holds it, and has to go first."""
    NOT_KNOWN_YET = "not known yet"
    """It was made a moment ago, and this service hasn't heard of it."""
    USED_TOKEN = "used token"  # noqa: S105 - a ClientToken is no secret
    """The ClientToken belongs to a call with other parameters: that one had its effect."""
    ENDED_TOKEN = "ended token"  # noqa: S105 - a ClientToken is no secret
    """What the call with this ClientToken made has ended."""
    PROTECTED = "protected"
    """Termination protection is on."""
    MALFORMED = "malformed"
    """The request can never succeed: a mistake of ours."""
    OTHER = "other"


CODES: dict[Refusal, tuple[str, ...]] = {
    Refusal.CAPACITY: (
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InstanceTypeNotSupported",
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "Unsupported",
    ),
    Refusal.QUOTA: (
        "AddressLimitExceeded",
        "InstanceLimitExceeded",
        "InternetGatewayLimitExceeded",
        "LimitExceeded",
        "LimitExceededException",
        "MaxSpotInstanceCountExceeded",
        "NetworkInterfaceLimitExceeded",
        "PendingVerification",
        "RouteTableLimitExceeded",
        "SecurityGroupLimitExceeded",
        "ServiceQuotaExceededException",
        "SubnetLimitExceeded",
        "TooManyBuckets",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
        "VpcEndpointLimitExceeded",
        "VpcLimitExceeded",
    ),
    Refusal.AUTH: (
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "InvalidToken",
        "MissingAuthenticationToken",
        "NotSignedUp",
        "OptInRequired",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    ),
    Refusal.DENIED: (
        "403",
        "AccessDenied",
        "AccessDeniedException",
        "Blocked",
        "Forbidden",
        "UnauthorizedOperation",
    ),
    Refusal.THROTTLED: (
        "429",
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
    ),
    Refusal.UNANSWERED: (
        "500",
        "503",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServerException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceException",
        "ServiceUnavailable",
        "Unavailable",
    ),
    Refusal.MISSING: (
        "404",
        "AWS.SimpleQueueService.NonExistentQueue",
        "Gateway.NotAttached",
        "NoSuchBucket",
        "NoSuchEntity",
        "NoSuchKey",
        "NoSuchResourceException",
        "NotFound",
        "ParameterNotFound",
        "QueueDoesNotExist",
        "ResourceNotFoundException",
    ),
    Refusal.IN_USE: (
        "ConcurrentModification",
        "DeleteConflict",
        "DependencyViolation",
        "IncorrectState",
        "InvalidNetworkInterface.InUse",
        "ResourceInUse",
        "VolumeInUse",
    ),
    Refusal.USED_TOKEN: ("IdempotentParameterMismatch",),
    Refusal.ENDED_TOKEN: ("IdempotentInstanceTerminated",),
    Refusal.PROTECTED: ("OperationNotPermitted",),
    Refusal.MALFORMED: (
        "InvalidBlockDeviceMapping",
        "InvalidParameter",
        "InvalidParameterCombination",
        "InvalidParameterValue",
        "InvalidRequest",
        "MalformedPolicyDocument",
        "MissingParameter",
        "UnknownParameter",
        "ValidationError",
        "ValidationException",
    ),
}
