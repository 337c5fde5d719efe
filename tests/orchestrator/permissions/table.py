"""Every operation that the controller or a box may call, with what IAM is asked for it."""

from __future__ import annotations

from collections.abc import Callable

from .calls import (
    Rule,
    adds_role,
    anything,
    bucket,
    iam,
    makes,
    nothing,
    objects,
    on,
    parameter,
    queue,
    runs,
    schedule,
    secret,
    tags_table,
)

_VPC, _TABLE = ("vpc", "VpcId"), ("route-table", "RouteTableIds")
_EC2: dict[str, Callable[[str], Rule]] = {
    "AttachInternetGateway": on("internet-gateway", "InternetGatewayId", _VPC),
    "AuthorizeSecurityGroupIngress": on("security-group", "GroupId"),
    "CreateInternetGateway": makes("internet-gateway"),
    "CreateRoute": on("route-table", "RouteTableId"),
    "CreateSecurityGroup": makes("security-group", _VPC),
    "CreateSubnet": makes("subnet", _VPC),
    "CreateTags": tags_table,
    "CreateVpc": makes("vpc"),
    "CreateVpcEndpoint": makes("vpc-endpoint", _VPC, _TABLE),
    "DeleteInternetGateway": on("internet-gateway", "InternetGatewayId"),
    "DeleteKeyPair": on("key-pair", "KeyName"),
    "DeleteNetworkInterface": on("network-interface", "NetworkInterfaceId"),
    "DeleteRouteTable": on("route-table", "RouteTableId"),
    "DeleteSecurityGroup": on("security-group", "GroupId"),
    "DeleteSubnet": on("subnet", "SubnetId"),
    "DeleteVolume": on("volume", "VolumeId"),
    "DeleteVpc": on("vpc", "VpcId"),
    "DeleteVpcEndpoints": on("vpc-endpoint", "VpcEndpointIds"),
    "DetachInternetGateway": on("internet-gateway", "InternetGatewayId", _VPC),
    "ImportKeyPair": makes("key-pair"),
    "ModifyInstanceAttribute": on("instance", "InstanceId"),
    "ModifyVpcAttribute": on("vpc", "VpcId"),
    "ReplaceRoute": on("route-table", "RouteTableId"),
    "RevokeSecurityGroupEgress": on("security-group", "GroupId"),
    "RevokeSecurityGroupIngress": on("security-group", "GroupId"),
    "RunInstances": runs,
    "TerminateInstances": on("instance", "InstanceIds"),
}
_LOOKS = (
    *("AvailabilityZones", "Images", "InstanceAttribute", "InstanceTypeOfferings"),
    *(
        "InstanceTypes",
        "Instances",
        "InternetGateways",
        "KeyPairs",
        "NatGateways",
        "NetworkInterfaces",
    ),
    *("Regions", "RouteTables", "SecurityGroups", "Subnets", "Tags", "Volumes"),
    *("VpcEndpoints", "Vpcs"),
)
_ROLE, _PROFILE = ("role", "RoleName"), ("instance-profile", "InstanceProfileName")
_IAM: dict[str, Callable[[str], Rule]] = {
    "AddRoleToInstanceProfile": adds_role,
    "CreateInstanceProfile": iam(*_PROFILE, "TagInstanceProfile"),
    "CreateRole": iam(*_ROLE, "TagRole"),
    "DeleteInstanceProfile": iam(*_PROFILE),
    "DeleteRole": iam(*_ROLE),
    "DeleteRolePolicy": iam(*_ROLE),
    "GetInstanceProfile": iam(*_PROFILE),
    "GetRole": iam(*_ROLE),
    "ListAttachedRolePolicies": iam(*_ROLE),
    "ListInstanceProfilesForRole": iam(*_ROLE),
    "ListRolePolicies": iam(*_ROLE),
    "PutRolePolicy": iam(*_ROLE),
    "RemoveRoleFromInstanceProfile": iam(*_PROFILE),
    "UpdateAssumeRolePolicy": iam(*_ROLE),
}
_S3: dict[str, Rule] = {
    "AbortMultipartUpload": objects("AbortMultipartUpload"),
    "CompleteMultipartUpload": objects("PutObject"),
    "CreateBucket": bucket("CreateBucket", "PutBucketOwnershipControls"),
    "CreateMultipartUpload": objects("PutObject"),
    "GetObject": objects("GetObject"),
    "GetPublicAccessBlock": bucket("GetBucketPublicAccessBlock"),
    "HeadBucket": bucket("ListBucket"),
    "HeadObject": objects("GetObject"),
    "ListBuckets": anything("s3:ListAllMyBuckets"),
    "ListMultipartUploads": bucket("ListBucketMultipartUploads"),
    "ListObjectVersions": bucket("ListBucketVersions"),
    "ListObjectsV2": bucket("ListBucket"),
    "PutBucketEncryption": bucket("PutEncryptionConfiguration"),
    "PutBucketLifecycleConfiguration": bucket("PutLifecycleConfiguration"),
    "PutBucketPolicy": bucket("PutBucketPolicy"),
    "PutBucketTagging": bucket("PutBucketTagging"),
    "PutBucketVersioning": bucket("PutBucketVersioning"),
    "PutObject": objects("PutObject"),
    "PutPublicAccessBlock": bucket("PutBucketPublicAccessBlock"),
    "UploadPart": objects("PutObject"),
}
_SCHEDULER = ("CreateSchedule", "DeleteSchedule", "GetSchedule", "UpdateSchedule")
_SQS = ("DeleteQueue", "GetQueueAttributes", "GetQueueUrl", "ListQueueTags", "ReceiveMessage")

TABLE: dict[tuple[str, str], Rule] = {
    **{("ec2", name): rule(name) for name, rule in _EC2.items()},
    **{("ec2", f"Describe{name}"): anything(f"ec2:Describe{name}") for name in _LOOKS},
    **{("iam", name): rule(name) for name, rule in _IAM.items()},
    ("iam", "ListRoles"): anything("iam:ListRoles"),
    ("iam", "ListInstanceProfiles"): anything("iam:ListInstanceProfiles"),
    **{("s3", name): rule for name, rule in _S3.items()},
    **{("scheduler", name): schedule(name) for name in _SCHEDULER},
    ("scheduler", "ListSchedules"): anything("scheduler:ListSchedules"),
    ("secretsmanager", "DescribeSecret"): secret("DescribeSecret"),
    ("secretsmanager", "GetSecretValue"): secret("GetSecretValue"),
    ("service-quotas", "GetServiceQuota"): anything("servicequotas:GetServiceQuota"),
    **{("sqs", name): queue()(name) for name in _SQS},
    ("sqs", "CreateQueue"): queue("TagQueue")("CreateQueue"),
    ("sqs", "ListQueues"): anything("sqs:ListQueues"),
    ("ssm", "DeleteParameter"): parameter("Name")("DeleteParameter"),
    ("ssm", "DescribeParameters"): anything("ssm:DescribeParameters"),
    ("ssm", "GetParameter"): parameter("Name")("GetParameter"),
    ("ssm", "ListTagsForResource"): parameter("ResourceId")("ListTagsForResource"),
    ("ssm", "PutParameter"): parameter("Name")("PutParameter"),
    ("sts", "GetCallerIdentity"): nothing,
}
"""By service and operation, as boto3 names them."""

ADMINISTRATORS = {
    *(("lambda", f"{verb}Function") for verb in ("Create", "Delete", "Get")),
    *(("lambda", f"UpdateFunction{what}") for what in ("Code", "Configuration")),
    *(("logs", f"{verb}LogGroup") for verb in ("Create", "Delete")),
    ("logs", "PutRetentionPolicy"),
}
"""What only `gpurun aws setup` calls, once, with an administrator's credentials."""
