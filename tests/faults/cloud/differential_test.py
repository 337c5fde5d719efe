"""The same calls in any order, right or wrong, are answered or refused alike by model and moto."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.faults.cloud.identity_contract_test import POLICY
from tests.faults.cloud.kit import KEY, PARAMETER, REGION, RUN, TestAccount, open_account, trust

STEPS = 70
TYPE = "g6.xlarge"
Names = dict[str, list[str]]
Step = Callable[[TestAccount, "Pick"], tuple[str, str] | None]


@dataclass
class Pick:
    """The same choice among each account's own ids; `made` is what it has, by kind."""

    seed: int
    made: Names = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def one(self, kind: str) -> str:
        """An id of the kind, mostly a new one, also of what is gone; or of nothing at all."""
        known = self.made[kind]
        if not known:
            return f"{kind}-0123456789abcdef0"
        return known[max(0, len(known) - 1 - int(self.dice.expovariate(0.7)))]


_DESCRIBED = {
    "eni": ("describe_network_interfaces", "NetworkInterfaceIds"),
    "i": ("describe_instances", "InstanceIds"),
    "igw": ("describe_internet_gateways", "InternetGatewayIds"),
    "rtb": ("describe_route_tables", "RouteTableIds"),
    "sg": ("describe_security_groups", "GroupIds"),
    "subnet": ("describe_subnets", "SubnetIds"),
    "vpc": ("describe_vpcs", "VpcIds"),
}


def _there(account: TestAccount, pick: Pick, kind: str) -> str:
    """An id that both look up first: moto lets some calls name what isn't there."""
    operation, key = _DESCRIBED[kind]
    name = pick.one(kind)
    try:
        getattr(account.ec2, operation)(**{key: [name]})
    except ClientError:
        pick.made[kind] = [each for each in pick.made[kind] if each != name]  # once is enough
        raise
    return name


def _vpc(account: TestAccount, pick: Pick) -> tuple[str, str]:
    made = account.ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=account.spec("vpc"))
    return "vpc", made["Vpc"]["VpcId"]


def _subnet(account: TestAccount, pick: Pick) -> tuple[str, str]:
    made = account.ec2.create_subnet(
        VpcId=pick.one("vpc"),
        CidrBlock=f"10.0.{pick.dice.randrange(6)}.0/24",
        AvailabilityZone=f"{REGION}a",
        TagSpecifications=account.spec("subnet"),
    )
    return "subnet", made["Subnet"]["SubnetId"]


def _group(account: TestAccount, pick: Pick) -> tuple[str, str]:
    name = pick.dice.choice("abc")
    made = account.ec2.create_security_group(
        GroupName=name,
        Description="d",
        VpcId=_there(account, pick, "vpc"),
        TagSpecifications=account.spec("security-group"),
    )
    return "sg", made["GroupId"]


def _gateway(account: TestAccount, pick: Pick) -> tuple[str, str]:
    made = account.ec2.create_internet_gateway(TagSpecifications=account.spec("internet-gateway"))
    return "igw", made["InternetGateway"]["InternetGatewayId"]


def _table(account: TestAccount, pick: Pick) -> tuple[str, str]:
    made = account.ec2.create_route_table(
        VpcId=pick.one("vpc"), TagSpecifications=account.spec("route-table")
    )
    return "rtb", made["RouteTable"]["RouteTableId"]


def _endpoint(account: TestAccount, pick: Pick) -> tuple[str, str]:
    vpc, service = _there(account, pick, "vpc"), f"com.amazonaws.{REGION}.s3"
    made = account.ec2.create_vpc_endpoint(
        VpcId=vpc,
        ServiceName=service,
        VpcEndpointType="Gateway",
        TagSpecifications=account.spec("vpc-endpoint"),
    )
    return "vpce", made["VpcEndpoint"]["VpcEndpointId"]


def _interface(account: TestAccount, pick: Pick) -> tuple[str, str]:
    made = account.ec2.create_network_interface(
        SubnetId=pick.one("subnet"), TagSpecifications=account.spec("network-interface")
    )
    return "eni", made["NetworkInterface"]["NetworkInterfaceId"]


def _box(account: TestAccount, pick: Pick) -> tuple[str, str]:
    nic = {"DeviceIndex": 0, "SubnetId": pick.one("subnet"), "AssociatePublicIpAddress": True}
    seen = account.ec2.describe_subnets(SubnetIds=[nic["SubnetId"]])["Subnets"][0]
    group = pick.one("sg")
    of_group = account.ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]
    same = of_group["VpcId"] == seen["VpcId"]  # moto wears groups of any VPC
    image = account.ssm.get_parameter(Name=PARAMETER)["Parameter"]["Value"]
    made = account.ec2.run_instances(
        ImageId=image,
        InstanceType=TYPE,
        MinCount=1,
        MaxCount=1,
        NetworkInterfaces=[nic | ({"Groups": [group]} if same else {})],
        DisableApiTermination=pick.dice.random() < 0.1,
        TagSpecifications=account.spec("instance", "volume", "network-interface"),
    )
    return "i", made["Instances"][0]["InstanceId"]


def _calls(service: str, operation: str, **kinds: str) -> Step:
    """A call whose parameters are ids of these kinds."""

    def step(account: TestAccount, pick: Pick) -> None:
        asked = {key: _there(account, pick, kind) for key, kind in kinds.items()}
        listed = {key: [asked[key]] if key.endswith("Ids") else asked[key] for key in asked}
        getattr(account.client(service), operation)(**listed)

    step.__qualname__ = operation
    return step


def _iam(operation: str, **fixed: Any) -> Step:
    """A call of IAM about one of two roles or profiles."""

    def step(account: TestAccount, pick: Pick) -> None:
        names = {key: pick.dice.choice("xy") for key in fixed.get("names", ())}
        more = {key: value for key, value in fixed.items() if key != "names"}
        getattr(account.iam, operation)(**names, **more)

    step.__qualname__ = operation
    return step


def _attach(account: TestAccount, pick: Pick) -> None:
    gateway, vpc = _there(account, pick, "igw"), _there(account, pick, "vpc")
    here = [{"Name": "attachment.vpc-id", "Values": [vpc]}]
    others = account.ec2.describe_internet_gateways(Filters=here)["InternetGateways"]
    if all(each["InternetGatewayId"] == gateway for each in others):  # moto attaches any number
        account.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)


def _detach(account: TestAccount, pick: Pick) -> None:
    """Not while a box is ending: the model keeps its address mapped until it has ended."""
    name, of_state = _there(account, pick, "igw"), "instance-state-name"
    ending = [{"Name": of_state, "Values": ["shutting-down"]}]
    (found,) = account.ec2.describe_internet_gateways(InternetGatewayIds=[name])[
        "InternetGateways"
    ]
    if not account.ec2.describe_instances(Filters=ending)["Reservations"]:
        for link in found["Attachments"]:
            account.ec2.detach_internet_gateway(InternetGatewayId=name, VpcId=link["VpcId"])


def _take_role(account: TestAccount, pick: Pick) -> None:
    """Only one that is in it: moto breaks over another."""
    name = pick.dice.choice("xy")
    found = account.iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    for role in found["Roles"]:
        account.iam.remove_role_from_instance_profile(
            InstanceProfileName=name, RoleName=role["RoleName"]
        )


def _name_each_other(account: TestAccount, pick: Pick) -> None:
    first, second = _there(account, pick, "sg"), _there(account, pick, "sg")
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    both = [{"Name": "group-id", "Values": [first, second]}]
    found = account.ec2.describe_security_groups(Filters=both)["SecurityGroups"]
    if len({group["VpcId"] for group in found}) == 1:
        account.ec2.authorize_security_group_ingress(
            GroupId=first,
            IpPermissions=[{**rule, "UserIdGroupPairs": [{"GroupId": second}]}],
        )


def _key(account: TestAccount, pick: Pick) -> None:
    account.ec2.import_key_pair(KeyName=f"gpurun-{RUN}", PublicKeyMaterial=KEY.encode())


def _time(account: TestAccount, pick: Pick) -> None:
    account.pass_time(pick.dice.choice((1, 10, 45, 90)))


_ROLE, _PROFILE = ("RoleName",), ("InstanceProfileName",)
STEPS_TO_TAKE: tuple[Step, ...] = (
    *(_vpc, _subnet, _subnet, _group, _group, _gateway, _table, _table, _endpoint, _interface),
    *(_vpc, _subnet, _group, _gateway, _attach, _interface, _name_each_other),
    *(_box, _box, _box, _box, _key, _name_each_other, _time, _time),
    _calls("ec2", "delete_vpc", VpcId="vpc"),
    _calls("ec2", "delete_subnet", SubnetId="subnet"),
    _calls("ec2", "delete_security_group", GroupId="sg"),
    *(_attach, _attach),
    *(_detach, _detach),
    _calls("ec2", "delete_internet_gateway", InternetGatewayId="igw"),
    _calls("ec2", "delete_route_table", RouteTableId="rtb"),
    _calls("ec2", "associate_route_table", RouteTableId="rtb", SubnetId="subnet"),
    _calls("ec2", "terminate_instances", InstanceIds="i"),
    _calls("ec2", "terminate_instances", InstanceIds="i"),
    _calls("ec2", "delete_network_interface", NetworkInterfaceId="eni"),
    _iam("create_role", names=_ROLE, AssumeRolePolicyDocument=trust("ec2")),
    _iam("delete_role", names=_ROLE),
    _iam("put_role_policy", names=_ROLE, PolicyName="p", PolicyDocument=POLICY),
    _iam("delete_role_policy", names=_ROLE, PolicyName="p"),
    _iam("create_instance_profile", names=_PROFILE),
    _iam("delete_instance_profile", names=_PROFILE),
    _iam("add_role_to_instance_profile", names=(*_ROLE, *_PROFILE)),
    _take_role,
)


AT_FIRST: tuple[Step, ...] = (_vpc, _gateway, _attach, _subnet, _subnet, _group, _group, _box)


def life(name: str, seed: int) -> Iterator[tuple[str, str, object]]:
    """What is done, what comes of it, and what is seen then: one line a step."""
    order = random.Random(seed)
    with open_account(name) as account:
        account.turn(boot_s=20.0, shutdown_s=30.0, linger_s=45.0)
        pick = Pick(seed)
        for number in range(STEPS):
            step = AT_FIRST[number] if number < len(AT_FIRST) else order.choice(STEPS_TO_TAKE)
            pick.dice = random.Random(f"{seed} {number}")
            yield (
                f"{number} {step.__qualname__}",
                _outcome(step, account, pick),
                _seen(account, pick),
            )


def _outcome(step: Step, account: TestAccount, pick: Pick) -> str:
    try:
        made = step(account, pick)
    except ClientError as error:
        return f"{error.operation_name} {error.response['Error']['Code']}"
    if made:
        pick.made[made[0]].append(made[1])
    return "done"


def _seen(account: TestAccount, pick: Pick) -> object:
    """States of boxes, and how much there is of the rest."""
    boxes = account.ec2.describe_instances(InstanceIds=pick.made["i"]) if pick.made["i"] else {}
    states = [
        box["State"]["Name"] for each in boxes.get("Reservations", ()) for box in each["Instances"]
    ]
    mine = [{"Name": "tag:gpurun:run", "Values": [RUN]}]
    nics = account.ec2.describe_network_interfaces(Filters=mine)["NetworkInterfaces"]
    return sorted(states), sorted(nic["Status"] for nic in nics)


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=pytest.mark.slow if n > 1 else ()) for n in range(10)]
)
def test_the_model_and_moto_say_the_same_step_by_step(seed: int) -> None:
    done: list[object] = []
    for ours, theirs in zip(life("model", seed), life("moto", seed), strict=True):
        assert ours == theirs, done
        done.append(ours[:2])
    assert len(done) == STEPS
