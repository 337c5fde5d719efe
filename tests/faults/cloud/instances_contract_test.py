"""What EC2 says of launches and ends: tokens, limits, names, times, and what goes with a box."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.faults.cloud.kit import KEY, PARAMETER, RUN, TestAccount, refusal, refused, trust
from tests.faults.cloud.network_contract_test import build, group

TYPE = "g6.xlarge"


@pytest.fixture
def ami(account: TestAccount) -> str:
    return str(account.ssm.get_parameter(Name=PARAMETER)["Parameter"]["Value"])


@pytest.fixture
def subnet(account: TestAccount) -> str:
    return str(build(account).subnet)


Launch = Callable[..., Any]


@pytest.fixture
def launch(account: TestAccount, ami: str, subnet: str) -> Launch:
    """One instance, unless told otherwise."""

    def start(**more: Any) -> Any:
        asked = {
            "ImageId": ami,
            "InstanceType": TYPE,
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": subnet,
            "TagSpecifications": account.spec("instance", "volume", "network-interface"),
        } | more
        placed = {k: v for k, v in asked.items() if v is not None}
        return account.ec2.run_instances(**placed)["Instances"][0]

    return start


def look(account: TestAccount, box: Any) -> Any:
    found = account.ec2.describe_instances(InstanceIds=[box["InstanceId"]])
    return found["Reservations"][0]["Instances"][0]


def end(account: TestAccount, *boxes: Any) -> Any:
    ids = [box["InstanceId"] for box in boxes]
    return account.ec2.terminate_instances(InstanceIds=ids)["TerminatingInstances"]


def test_one_client_token_launches_once(account: TestAccount, launch: Launch) -> None:
    first = launch(ClientToken="one")["InstanceId"]
    assert launch(ClientToken="one")["InstanceId"] == first
    assert launch(ClientToken="two")["InstanceId"] != first


def test_a_client_token_with_other_parameters_is_refused(
    account: TestAccount, launch: Launch
) -> None:
    launch(ClientToken="one")
    other = {"ClientToken": "one", "UserData": "#!/bin/true"}
    assert refusal(launch, **other) == "IdempotentParameterMismatch"


def test_a_client_token_of_a_terminated_instance_is_used_up(
    account: TestAccount, launch: Launch
) -> None:
    box = launch(ClientToken="one")
    account.turn(shutdown_s=10)
    end(account, box)
    assert launch(ClientToken="one")["InstanceId"] == box["InstanceId"]
    account.pass_time(10)
    assert look(account, box)["State"]["Name"] == "terminated"
    assert refusal(launch, ClientToken="one") == "IdempotentInstanceTerminated"


def test_user_data_has_sixteen_kilobytes_at_most(account: TestAccount, launch: Launch) -> None:
    assert refusal(launch, UserData="#" * 16_385) == "InvalidParameterValue"
    text = "#!/bin/bash\necho ü\n"
    box = launch(UserData=text + "#" * (16_384 - len(text.encode())))
    found = account.ec2.describe_instance_attribute(
        InstanceId=box["InstanceId"], Attribute="userData"
    )
    assert base64.b64decode(found["UserData"]["Value"]).decode().startswith(text)


@pytest.mark.parametrize(
    "wrong,code",
    [
        ({"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound"),
        ({"InstanceType": "g6.5xlarge"}, "InvalidParameterValue"),
        ({"KeyName": "nobody"}, "InvalidKeyPair.NotFound"),
        ({"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
        ({"SubnetId": "subnet-0123456789abcdef0"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound"),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}]},
            "InvalidBlockDeviceMapping",
        ),
    ],
)
def test_unknown_and_impossible_parameters_are_refused(
    account: TestAccount, launch: Launch, wrong: dict[str, Any], code: str
) -> None:
    assert refusal(launch, **wrong) == code


def test_a_zone_that_does_not_offer_the_type_is_refused(
    account: TestAccount, launch: Launch
) -> None:
    if account.name == "aws":
        pytest.skip("zones have other names in each account")
    nowhere = {"SubnetId": None, "Placement": {"AvailabilityZone": "us-east-1e"}}
    assert refusal(launch, **nowhere) == "Unsupported"


def test_a_new_instance_profile_is_unknown_for_a_while(
    account: TestAccount, launch: Launch
) -> None:
    account.turn(profile_delay_s=10)
    name = f"gpurun-{RUN}-box"
    account.iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust("ec2"))
    account.iam.create_instance_profile(InstanceProfileName=name)
    profile = {"IamInstanceProfile": {"Name": name}}
    error = refused(launch, **profile)
    assert error.response["Error"]["Code"] == "InvalidParameterValue"
    assert "iam instance profile" in error.response["Error"]["Message"].lower()
    account.pass_time(10)
    assert launch(**profile)["IamInstanceProfile"]["Arn"].endswith(f"/{name}")


def test_the_quota_counts_vcpus_of_what_runs(account: TestAccount, launch: Launch) -> None:
    account.turn(vcpu_limits={"L-DB2E81BA": 8, "L-3819A6DF": 4})
    first = launch()
    launch()
    assert refusal(launch) == "VcpuLimitExceeded"
    end(account, first)
    launch()
    shown = account.quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")
    assert shown["Quota"]["Value"] == 8


def test_spot_boxes_have_a_quota_of_their_own(account: TestAccount, launch: Launch) -> None:
    account.turn(vcpu_limits={"L-DB2E81BA": 4, "L-3819A6DF": 4})
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    usual, cheap = launch(), launch(**spot)
    assert look(account, cheap)["InstanceLifecycle"] == "spot"
    assert "InstanceLifecycle" not in look(account, usual)
    assert refusal(launch, **spot) == "MaxSpotInstanceCountExceeded"
    assert refusal(launch) == "VcpuLimitExceeded"


def test_a_zone_without_room_refuses_with_a_server_error(
    account: TestAccount, launch: Launch
) -> None:
    account.turn(capacity={(TYPE, "us-east-1a"): 1})
    launch()
    error = refused(launch)
    assert error.response["Error"]["Code"] == "InsufficientInstanceCapacity"
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert error.operation_name == "RunInstances"


def test_as_many_start_as_there_is_room_for(account: TestAccount, launch: Launch) -> None:
    account.turn(capacity={(TYPE, "us-east-1a"): 2})
    assert refusal(launch, MinCount=3, MaxCount=3) == "InsufficientInstanceCapacity"
    launch(MinCount=1, MaxCount=3)
    filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    found = account.ec2.describe_instances(Filters=filters)["Reservations"]
    assert sum(len(each["Instances"]) for each in found) == 2


def test_a_box_takes_its_time_to_boot_and_to_end(account: TestAccount, launch: Launch) -> None:
    account.turn(boot_s=20, shutdown_s=60)
    box = launch()
    assert box["State"]["Name"] == "pending"
    account.pass_time(20)
    assert look(account, box)["State"] == {"Code": 16, "Name": "running"}
    (ending,) = end(account, box)
    assert ending["PreviousState"]["Name"] == "running"
    assert ending["CurrentState"]["Name"] == "shutting-down"
    assert look(account, box)["State"]["Name"] == "shutting-down"
    account.pass_time(60)
    assert look(account, box)["State"]["Name"] == "terminated"


def test_an_end_says_when_and_by_whom(account: TestAccount, launch: Launch) -> None:
    box = launch()
    assert box["LaunchTime"] - account.now() < timedelta(minutes=2)
    assert not look(account, box).get("StateReason", {}).get("Code")
    end(account, box)
    seen = look(account, box)
    assert seen["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert seen["StateTransitionReason"].startswith("User initiated (20")


def test_ending_twice_changes_nothing(account: TestAccount, launch: Launch) -> None:
    box = launch()
    end(account, box)
    account.turn()
    (again,) = end(account, box)
    assert again["PreviousState"]["Name"] == again["CurrentState"]["Name"] == "terminated"


def test_one_unknown_id_ends_nothing(account: TestAccount, launch: Launch) -> None:
    box = launch()
    both = {"InstanceIds": [box["InstanceId"], "i-0123456789abcdef0"]}
    assert refusal(account.ec2.terminate_instances, **both) == "InvalidInstanceID.NotFound"
    assert look(account, box)["State"]["Name"] in ("pending", "running")


def test_protection_holds_until_it_is_taken_off(account: TestAccount, launch: Launch) -> None:
    kept, other = launch(DisableApiTermination=True), launch()
    both = {"InstanceIds": [other["InstanceId"], kept["InstanceId"]]}
    assert refusal(account.ec2.terminate_instances, **both) == "OperationNotPermitted"
    assert look(account, other)["State"]["Name"] in ("pending", "running")
    account.ec2.modify_instance_attribute(
        InstanceId=kept["InstanceId"], DisableApiTermination={"Value": False}
    )
    end(account, kept, other)


def test_what_a_launch_makes_is_tagged_and_holds_its_place(
    account: TestAccount, launch: Launch
) -> None:
    ec2 = account.ec2
    ebs = {"VolumeSize": 200, "VolumeType": "gp3", "Iops": 6000, "Throughput": 500}
    box = launch(BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": ebs}])
    mine = [{"Name": "tag:gpurun:run", "Values": [RUN]}]
    (volume,) = ec2.describe_volumes(Filters=mine)["Volumes"]
    assert (volume["Size"], volume["Iops"], volume["Throughput"]) == (200, 6000, 500)
    assert volume["State"] == "in-use"
    assert refusal(ec2.delete_volume, VolumeId=volume["VolumeId"]) == "VolumeInUse"
    (nic,) = ec2.describe_network_interfaces(Filters=mine)["NetworkInterfaces"]
    assert nic["Attachment"]["InstanceId"] == box["InstanceId"]
    assert nic["Status"] == "in-use"


def test_a_box_holds_subnet_group_and_gateway_until_its_interface_is_gone(
    account: TestAccount, launch: Launch
) -> None:
    account.turn(linger_s=30)
    ec2, vpc = account.ec2, build(account)
    nic = {"DeviceIndex": 0, "SubnetId": vpc.subnet, "Groups": [vpc.group]}
    public = {**nic, "AssociatePublicIpAddress": True}
    box = launch(SubnetId=None, NetworkInterfaces=[public])
    assert look(account, box)["PublicIpAddress"]
    gateway = {"InternetGatewayId": vpc.gateway, "VpcId": vpc.id}
    assert refusal(ec2.detach_internet_gateway, **gateway) == "DependencyViolation"
    end(account, box)
    for act, what in (
        (ec2.delete_subnet, {"SubnetId": vpc.subnet}),
        (ec2.delete_security_group, {"GroupId": vpc.group}),
    ):
        assert refusal(act, **what) == "DependencyViolation"
    assert "PublicIpAddress" not in look(account, box)
    account.pass_time(30)
    here = [{"Name": "vpc-id", "Values": [vpc.id]}]
    assert ec2.describe_network_interfaces(Filters=here)["NetworkInterfaces"] == []
    ec2.delete_subnet(SubnetId=vpc.subnet)
    ec2.delete_security_group(GroupId=vpc.group)
    ec2.detach_internet_gateway(**gateway)


def test_volumes_go_with_their_box_if_they_are_to(account: TestAccount, launch: Launch) -> None:
    stays = {"VolumeSize": 100, "DeleteOnTermination": False}
    boxes = [launch(), launch(BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": stays}])]
    end(account, *boxes)
    account.turn()
    mine = [{"Name": "tag:gpurun:run", "Values": [RUN]}]
    (left,) = account.ec2.describe_volumes(Filters=mine)["Volumes"]
    assert (left["Size"], left["State"]) == (100, "available")
    account.ec2.delete_volume(VolumeId=left["VolumeId"])


def test_boxes_are_found_by_each_filter_that_we_use(account: TestAccount, launch: Launch) -> None:
    box = launch()
    for name, value in (
        ("instance-id", box["InstanceId"]),
        ("tag:gpurun:run", RUN),
        ("tag-key", "gpurun:run"),
        ("vpc-id", box["VpcId"]),
    ):
        pages = account.ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": name, "Values": [value]}]
        )
        found = [each for page in pages for each in page["Reservations"]]
        assert [i["InstanceId"] for each in found for i in each["Instances"]] == [
            box["InstanceId"]
        ]
    other = [{"Name": "instance-id", "Values": ["i-0123456789abcdef0"]}]
    assert account.ec2.describe_instances(Filters=other)["Reservations"] == []


def test_an_image_parameter_leads_to_an_image(account: TestAccount, ami: str) -> None:
    (image,) = account.ec2.describe_images(Filters=[{"Name": "image-id", "Values": [ami]}])[
        "Images"
    ]
    assert image["State"] == "available"
    assert image["BlockDeviceMappings"][0]["DeviceName"] == image["RootDeviceName"]
    assert image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] > 8
    missing = PARAMETER.replace("24.04", "26.04")
    assert refusal(account.ssm.get_parameter, Name=missing) == "ParameterNotFound"


def test_zones_offer_types(account: TestAccount) -> None:
    zones = account.ec2.describe_availability_zones(
        Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}]
    )["AvailabilityZones"]
    assert f"{account.session.region}a" in {zone["ZoneName"] for zone in zones}
    pages = account.ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [TYPE]}]
    )
    offers = [offer for page in pages for offer in page["InstanceTypeOfferings"]]
    assert {offer["InstanceType"] for offer in offers} == {TYPE}
    assert {offer["Location"] for offer in offers} <= {zone["ZoneName"] for zone in zones}
    types = account.ec2.describe_instance_types(
        Filters=[{"Name": "instance-type", "Values": [TYPE]}]
    )["InstanceTypes"]
    assert [each["VCpuInfo"]["DefaultVCpus"] for each in types] == [4]


def test_a_group_of_another_vpc_is_refused(
    account: TestAccount, launch: Launch, subnet: str
) -> None:
    other = group(account, build(account).id, "elsewhere")
    assert refusal(launch, SecurityGroupIds=[other]) == "InvalidParameter"
    nic = {"DeviceIndex": 0, "SubnetId": subnet, "Groups": [other]}
    assert refusal(launch, SubnetId=None, NetworkInterfaces=[nic]) == "InvalidParameter"


def test_a_group_that_is_not_there_is_refused(account: TestAccount, launch: Launch) -> None:
    nobody = {"SecurityGroupIds": ["sg-0123456789abcdef0"]}
    assert refusal(launch, **nobody) == "InvalidGroup.NotFound"


def test_a_key_that_was_imported_may_be_named(account: TestAccount, launch: Launch) -> None:
    name = f"gpurun-{RUN}"
    account.ec2.import_key_pair(
        KeyName=name,
        PublicKeyMaterial=KEY.encode(),
        TagSpecifications=account.spec("key-pair"),
    )
    assert launch(KeyName=name)["KeyName"] == name
