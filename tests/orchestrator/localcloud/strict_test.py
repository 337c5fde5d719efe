"""moto behind the strict rules refuses what EC2, IAM and EventBridge Scheduler refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from moto import mock_aws

from orchestrator.localcloud.rules.images import IMAGES, image_id
from orchestrator.localcloud.strict import StrictRules, strict_aws

REGION = "us-east-1"
PARAMETER = next(iter(IMAGES))
AMI = image_id(PARAMETER, REGION)
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "scheduler.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


class Cloud:
    """Clients, rules and a clock that only moves when told."""

    def __init__(self, rules: StrictRules, clock: SimpleNamespace) -> None:
        self.rules, self.clock = rules, clock

    def __getattr__(self, service: str) -> Any:
        return client({"quotas": "service-quotas"}.get(service, service))

    def pass_time(self, seconds: float) -> None:
        self.clock.now += timedelta(seconds=seconds)

    def launch(self, **extra: Any) -> dict[str, Any]:
        spec = {"ImageId": AMI, "InstanceType": "g6e.4xlarge", "MinCount": 1, "MaxCount": 1}
        made: dict[str, Any] = self.ec2.run_instances(**{**spec, **extra})["Instances"][0]
        return made

    def look(self, instance_id: str) -> dict[str, Any]:
        found = self.ec2.describe_instances(InstanceIds=[instance_id])
        seen: dict[str, Any] = found["Reservations"][0]["Instances"][0]
        return seen

    def vpc(self) -> SimpleNamespace:
        vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = self.ec2.create_subnet(
            VpcId=vpc, CidrBlock="10.0.0.0/24", AvailabilityZone="us-east-1a"
        )["Subnet"]["SubnetId"]
        self.ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
        gateway = self.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        self.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
        group = self.ec2.create_security_group(GroupName="x", Description="d", VpcId=vpc)
        return SimpleNamespace(id=vpc, subnet=subnet, gateway=gateway, group=group["GroupId"])

    def role(self, trust: dict[str, Any] = TRUST) -> str:
        made = self.iam.create_role(RoleName="kill", AssumeRolePolicyDocument=json.dumps(trust))
        return str(made["Role"]["Arn"])

    def schedule(self, **extra: Any) -> str:
        target = {
            "Arn": extra.pop("Arn", "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"),
            "RoleArn": extra.pop("RoleArn", "arn:aws:iam::123456789012:role/kill"),
            "Input": extra.pop("Input", '{"InstanceIds": ["i-1"]}'),
        }
        spec = {
            "Name": "kill",
            "ScheduleExpression": "at(2026-12-01T07:10:00)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": target,
        }
        return str(self.scheduler.create_schedule(**{**spec, **extra})["ScheduleArn"])


@cache
def client(name: str) -> Any:
    """Made once: moto answers a client through every block that it is used in."""
    config = Config(retries={"total_max_attempts": 1, "mode": "standard"})
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    make: Any = boto3.client  # the stubs take no name that is known only when it runs
    return make(name, region_name=REGION, config=config, **keys)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    clock = SimpleNamespace(now=datetime(2026, 12, 1, 6, 0, tzinfo=UTC))
    with strict_aws(now=lambda: clock.now) as rules:
        yield Cloud(rules, clock)


def refusal(call: Callable[..., Any], **kwargs: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**kwargs)
    return str(caught.value.response["Error"]["Code"])


def test_the_rules_are_lifted_at_the_end_of_the_block() -> None:
    with strict_aws():
        pass
    with mock_aws():
        ec2 = client("ec2")
        assert ec2.run_instances(ImageId="ami-unknown", MinCount=1, MaxCount=1)["Instances"]


def test_one_client_token_launches_once(cloud: Cloud) -> None:
    first = cloud.launch(ClientToken="t")["InstanceId"]
    assert cloud.launch(ClientToken="t")["InstanceId"] == first
    assert cloud.launch(ClientToken="u")["InstanceId"] != first


def test_a_client_token_with_other_parameters_is_refused(cloud: Cloud) -> None:
    cloud.launch(ClientToken="t")
    other = {"ClientToken": "t", "InstanceType": "g6.4xlarge"}
    assert refusal(cloud.launch, **other) == "IdempotentParameterMismatch"


def test_a_client_token_of_a_terminated_instance_is_refused(cloud: Cloud) -> None:
    box = cloud.launch(ClientToken="t")["InstanceId"]
    cloud.ec2.terminate_instances(InstanceIds=[box])
    assert refusal(cloud.launch, ClientToken="t") == "IdempotentInstanceTerminated"


def test_user_data_over_sixteen_kilobytes_is_refused(cloud: Cloud) -> None:
    cloud.launch(UserData="#" * 16_384)
    assert refusal(cloud.launch, UserData="#" * 16_385) == "InvalidParameterValue"


@pytest.mark.parametrize(
    "wrong,code",
    [
        ({"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound"),
        ({"InstanceType": "g6e.5xlarge"}, "InvalidParameterValue"),
        ({"KeyName": "nobody"}, "InvalidKeyPair.NotFound"),
        ({"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
        ({"Placement": {"AvailabilityZone": "us-east-1e"}}, "Unsupported"),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}]},
            "InvalidBlockDeviceMapping",
        ),
    ],
)
def test_unknown_and_impossible_parameters_are_refused(
    cloud: Cloud, wrong: dict[str, Any], code: str
) -> None:
    assert refusal(cloud.launch, **wrong) == code
    assert not cloud.ec2.describe_instances()["Reservations"]


def test_a_new_instance_profile_is_unknown_for_a_while(cloud: Cloud) -> None:
    cloud.rules.profile_delay_s = 10
    cloud.iam.create_instance_profile(InstanceProfileName="box")
    profile = {"IamInstanceProfile": {"Name": "box"}}
    assert refusal(cloud.launch, **profile) == "InvalidParameterValue"
    cloud.pass_time(10)
    assert cloud.launch(**profile)["IamInstanceProfile"]["Arn"].endswith("/box")


def test_the_vcpu_quota_counts_what_runs(cloud: Cloud) -> None:
    cloud.rules.vcpu_limits["L-DB2E81BA"] = 40
    boxes = [cloud.launch()["InstanceId"], cloud.launch(InstanceType="g6.4xlarge")["InstanceId"]]
    assert refusal(cloud.launch) == "VcpuLimitExceeded"
    cloud.ec2.terminate_instances(InstanceIds=boxes[:1])
    cloud.launch()


def test_the_quota_that_is_enforced_is_the_one_that_is_shown(cloud: Cloud) -> None:
    cloud.rules.vcpu_limits["L-DB2E81BA"] = 40
    shown = cloud.quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")
    assert shown["Quota"]["Value"] == 40


def test_a_zone_without_capacity_refuses_with_a_server_error(cloud: Cloud) -> None:
    cloud.rules.capacity["g6e.4xlarge", "us-east-1a"] = 0
    zone_a = {"Placement": {"AvailabilityZone": "us-east-1a"}}
    with pytest.raises(ClientError) as caught:
        cloud.launch(**zone_a)
    assert caught.value.response["Error"]["Code"] == "InsufficientInstanceCapacity"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    cloud.launch(Placement={"AvailabilityZone": "us-east-1b"})


def test_as_many_instances_start_as_were_asked_for(cloud: Cloud) -> None:
    spec = {"ImageId": AMI, "InstanceType": "g6e.xlarge", "MinCount": 1, "MaxCount": 3}
    assert len(cloud.ec2.run_instances(**spec)["Instances"]) == 3


def test_what_is_in_use_cannot_be_deleted(cloud: Cloud) -> None:
    vpc, ec2 = cloud.vpc(), cloud.ec2
    box = cloud.launch(SubnetId=vpc.subnet, SecurityGroupIds=[vpc.group])["InstanceId"]
    mine = [{"Name": "vpc-id", "Values": [vpc.id]}]
    groups = ec2.describe_security_groups(Filters=mine)["SecurityGroups"]
    default = next(g["GroupId"] for g in groups if g["GroupName"] == "default")
    main = ec2.describe_route_tables(Filters=mine)["RouteTables"][0]["RouteTableId"]
    gateway = {"InternetGatewayId": vpc.gateway, "VpcId": vpc.id}

    assert refusal(ec2.delete_subnet, SubnetId=vpc.subnet) == "DependencyViolation"
    assert refusal(ec2.delete_security_group, GroupId=vpc.group) == "DependencyViolation"
    assert refusal(ec2.delete_security_group, GroupId=default) == "CannotDelete"
    assert refusal(ec2.delete_route_table, RouteTableId=main) == "DependencyViolation"
    assert refusal(ec2.detach_internet_gateway, **gateway) == "DependencyViolation"
    assert refusal(ec2.delete_vpc, VpcId=vpc.id) == "DependencyViolation"

    ec2.terminate_instances(InstanceIds=[box])
    ec2.detach_internet_gateway(**gateway)
    ec2.delete_subnet(SubnetId=vpc.subnet)
    assert refusal(ec2.delete_vpc, VpcId=vpc.id) == "DependencyViolation"  # the group is left
    ec2.delete_security_group(GroupId=vpc.group)
    ec2.delete_vpc(VpcId=vpc.id)
    assert not ec2.describe_vpcs(Filters=mine)["Vpcs"]


def test_a_gateway_or_an_endpoint_keeps_its_vpc(cloud: Cloud) -> None:
    ec2 = cloud.ec2
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    assert refusal(ec2.delete_vpc, VpcId=vpc) == "DependencyViolation"
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    endpoint = ec2.create_vpc_endpoint(
        VpcId=vpc, ServiceName="com.amazonaws.us-east-1.s3", VpcEndpointType="Gateway"
    )
    assert refusal(ec2.delete_vpc, VpcId=vpc) == "DependencyViolation"
    ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint["VpcEndpoint"]["VpcEndpointId"]])
    ec2.delete_vpc(VpcId=vpc)


def test_groups_that_name_each_other_wait_for_the_rule_to_go(cloud: Cloud) -> None:
    ec2, vpc = cloud.ec2, cloud.vpc()
    other = ec2.create_security_group(GroupName="y", Description="d", VpcId=vpc.id)["GroupId"]
    pairs = [{"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2}]
    rule = [{**pairs[0], "UserIdGroupPairs": [{"GroupId": vpc.group}]}]
    ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=rule)
    assert refusal(ec2.delete_security_group, GroupId=vpc.group) == "DependencyViolation"
    ec2.revoke_security_group_ingress(GroupId=other, IpPermissions=rule)
    ec2.delete_security_group(GroupId=vpc.group)


def test_interfaces_outlive_their_instance_and_then_are_gone(cloud: Cloud) -> None:
    cloud.rules.linger_s = 30
    vpc = cloud.vpc()
    box = cloud.launch(SubnetId=vpc.subnet)["InstanceId"]
    mine = [{"Name": "vpc-id", "Values": [vpc.id]}]
    cloud.ec2.terminate_instances(InstanceIds=[box])
    assert cloud.ec2.describe_network_interfaces(Filters=mine)["NetworkInterfaces"]
    assert refusal(cloud.ec2.delete_subnet, SubnetId=vpc.subnet) == "DependencyViolation"
    cloud.pass_time(30)
    assert not cloud.ec2.describe_network_interfaces(Filters=mine)["NetworkInterfaces"]
    cloud.ec2.delete_subnet(SubnetId=vpc.subnet)


def test_an_instance_takes_its_time_to_boot_and_to_end(cloud: Cloud) -> None:
    cloud.rules.boot_s, cloud.rules.shutdown_s = 20, 60
    launched = cloud.launch()
    box = launched["InstanceId"]
    assert launched["State"]["Name"] == "pending"
    cloud.pass_time(20)
    assert cloud.look(box)["State"]["Name"] == "running"
    cloud.ec2.terminate_instances(InstanceIds=[box])
    assert cloud.look(box)["State"]["Name"] == "shutting-down"
    cloud.pass_time(60)
    assert cloud.look(box)["State"]["Name"] == "terminated"


def test_terminating_twice_answers_terminated_and_keeps_the_reason(cloud: Cloud) -> None:
    box = cloud.launch()["InstanceId"]
    cloud.ec2.terminate_instances(InstanceIds=[box])
    again = cloud.ec2.terminate_instances(InstanceIds=[box])["TerminatingInstances"][0]
    assert again["PreviousState"]["Name"] == again["CurrentState"]["Name"] == "terminated"
    assert cloud.look(box)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"


def test_termination_protection_holds_from_the_launch_on(cloud: Cloud) -> None:
    kept = cloud.launch(DisableApiTermination=True)["InstanceId"]
    other = cloud.launch()["InstanceId"]
    both = {"InstanceIds": [other, kept]}
    assert refusal(cloud.ec2.terminate_instances, **both) == "OperationNotPermitted"
    assert cloud.look(other)["State"]["Name"] == "running"


def test_tags_of_interfaces_and_the_speed_of_volumes_are_kept(cloud: Cloud) -> None:
    ebs = {"VolumeSize": 200, "VolumeType": "gp3", "Iops": 6000, "Throughput": 500}
    tags = [{"Key": "gpurun:run", "Value": "r"}]
    box = cloud.launch(
        BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": ebs}],
        TagSpecifications=[{"ResourceType": "network-interface", "Tags": tags}],
    )
    volume = cloud.ec2.describe_volumes()["Volumes"][0]
    assert (volume["Iops"], volume["Throughput"]) == (6000, 500)
    mine = [{"Name": "attachment.instance-id", "Values": [box["InstanceId"]]}]
    interface = cloud.ec2.describe_network_interfaces(Filters=mine)["NetworkInterfaces"][0]
    assert interface["TagSet"] == tags


def test_deleted_things_have_no_tags(cloud: Cloud) -> None:
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": "gpurun:run", "Value": "r"}]}]
    vpc = cloud.ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags)["Vpc"]["VpcId"]
    mine = [{"Name": "key", "Values": ["gpurun:run"]}]
    assert [t["ResourceId"] for t in cloud.ec2.describe_tags(Filters=mine)["Tags"]] == [vpc]
    cloud.ec2.delete_vpc(VpcId=vpc)
    assert not cloud.ec2.describe_tags(Filters=mine)["Tags"]


@pytest.mark.parametrize("parameter", IMAGES)
def test_an_image_parameter_leads_to_an_image_that_can_be_launched(
    cloud: Cloud, parameter: str
) -> None:
    ami = cloud.ssm.get_parameter(Name=parameter)["Parameter"]["Value"]
    image = cloud.ec2.describe_images(ImageIds=[ami])["Images"][0]
    smallest = 8 if "/canonical/" in parameter else 75
    assert image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == smallest
    assert cloud.launch(ImageId=ami)["RootDeviceName"] == image["RootDeviceName"]


def test_a_parameter_that_names_no_image_is_not_found(cloud: Cloud) -> None:
    unknown = PARAMETER.replace("24.04", "26.04").replace("22.04", "26.04")
    assert refusal(cloud.ssm.get_parameter, Name=unknown) == "ParameterNotFound"


@pytest.mark.parametrize(
    "wrong",
    [
        {"ScheduleExpression": "at(tomorrow)"},
        {"ScheduleExpression": "at(2026-12-01T05:59:59)"},
        {"ScheduleExpression": "at(2026-12-01T07:10:00Z)"},
        {"ScheduleExpressionTimezone": "Mars/Olympus"},
        {"Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstance"},
        {"Arn": "arn:aws:scheduler:::aws-sdk:ec2:TerminateInstances"},
        {"Arn": "arn:aws:scheduler:::aws-sdk:ec3:terminateInstances"},
        {"Arn": "arn:aws:scheduler:::aws-sdk:ec2:describeInstances"},
        {"Arn": "terminate"},
        {"RoleArn": "arn:aws:iam::123456789012:role/nobody"},
        {"Input": "{"},
        {"Name": "k" * 65},
    ],
)
def test_a_schedule_that_could_never_fire_is_refused(cloud: Cloud, wrong: dict[str, str]) -> None:
    cloud.role()
    assert refusal(cloud.schedule, **wrong) == "ValidationException"
    assert not cloud.scheduler.list_schedules()["Schedules"]


def test_a_schedule_needs_a_role_that_the_scheduler_may_assume(cloud: Cloud) -> None:
    trust = json.loads(json.dumps(TRUST).replace("scheduler.", "ec2."))
    assert refusal(cloud.schedule, RoleArn=cloud.role(trust)) == "ValidationException"


def test_a_new_role_cannot_be_assumed_for_a_while(cloud: Cloud) -> None:
    cloud.rules.role_delay_s = 8
    role = cloud.role()
    assert refusal(cloud.schedule, RoleArn=role) == "ValidationException"
    cloud.pass_time(8)
    cloud.schedule(RoleArn=role)


def test_one_client_token_makes_one_schedule(cloud: Cloud) -> None:
    cloud.role()
    first = cloud.schedule(ClientToken="t")
    assert cloud.schedule(ClientToken="t") == first
    assert refusal(cloud.schedule, ClientToken="u") == "ConflictException"
