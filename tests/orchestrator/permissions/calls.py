"""What IAM is asked for each call that the controller makes: actions, resources, context.

From the Service Authorization Reference: an operation may need several actions, each on every
resource that it touches, and some operations go by another action's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends
from moto.secretsmanager.models import secretsmanager_backends

ACCOUNT = "123456789012"
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Ask:
    """One question to IAM."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class At:
    """Where a call goes; what is there is looked up in moto, before the call has its effect."""

    region: str

    def arn(self, service: str, rest: str) -> str:
        region = "" if service == "iam" else self.region
        return f"arn:aws:{service}:{region}:{ACCOUNT}:{rest}"

    def here(self) -> dict[str, str]:
        return {"aws:RequestedRegion": self.region}

    def ec2_there(self, action: str, kind: str, name: str) -> Ask:
        """On a thing that is there, with the tags that it has."""
        tags = ec2_backends[ACCOUNT][self.region].tags.get(_tagged_id(self, kind, name), {})
        context = {f"aws:ResourceTag/{key}": value for key, value in tags.items()}
        return Ask(action, self.arn("ec2", f"{kind}/{name}"), context | self.here())

    def iam_named(self, action: str, kind: str, name: str) -> Ask:
        """IAM knows a path only of what is there."""
        backend = iam_backends[ACCOUNT]["aws"]
        kept = backend.roles if kind == "role" else backend.instance_profiles
        paths = [each.path for each in kept.values() if each.name == name]
        return Ask(action, self.arn("iam", f"{kind}{(paths or ['/'])[0]}{name}"), self.here())


Rule = Callable[[Params, At], Iterator[Ask]]


def _tagged_id(at: At, kind: str, name: str) -> str:
    """EC2 keeps a key pair's tags under its id, and names it by its name."""
    if kind != "key-pair":
        return name
    pair = ec2_backends[ACCOUNT][at.region].key_pairs.get(name)
    return str(pair.id) if pair is not None else ""


def anything(action: str) -> Rule:
    """An action that knows no narrower resource than everything."""

    def asks(params: Params, at: At) -> Iterator[Ask]:
        yield Ask(action, "*", at.here())

    return asks


def on(kind: str, key: str, *more: tuple[str, str]) -> Callable[[str], Rule]:
    """An EC2 action on what the parameter names, or on each that it lists."""

    def rule(action: str) -> Rule:
        def asks(params: Params, at: At) -> Iterator[Ask]:
            for one, name in ((kind, key), *more):
                named = params[name]
                for each in named if isinstance(named, list) else [named]:
                    yield at.ec2_there(f"ec2:{action}", one, each)

        return asks

    return rule


def makes(kind: str, *there: tuple[str, str]) -> Callable[[str], Rule]:
    """An EC2 action that makes a thing, among others that are there, and tags it."""

    def rule(action: str) -> Rule:
        def asks(params: Params, at: At) -> Iterator[Ask]:
            yield from _made(f"ec2:{action}", kind, params, at)
            for one, key in there:
                named = params[key]
                for each in named if isinstance(named, list) else [named]:
                    yield at.ec2_there(f"ec2:{action}", one, each)

        return asks

    return rule


def _made(
    action: str, kind: str, params: Params, at: At, more: Mapping[str, str] | None = None
) -> Iterator[Ask]:
    """On the thing to be made; its tags go along and need ec2:CreateTags."""
    tags = {
        f"aws:RequestTag/{tag['Key']}": tag["Value"]
        for spec in params.get("TagSpecifications", [])
        if spec["ResourceType"] == kind
        for tag in spec["Tags"]
    }
    arn = at.arn("ec2", f"{kind}/{params.get('KeyName') if kind == 'key-pair' else '*'}")
    yield Ask(action, arn, tags | at.here() | dict(more or {}))
    if tags:
        created = {"ec2:CreateAction": action.removeprefix("ec2:")}
        yield Ask("ec2:CreateTags", arn, tags | at.here() | created)


def runs(action: str) -> Rule:
    def asks(params: Params, at: At) -> Iterator[Ask]:
        named = f"ec2:{action}"
        kind = {"ec2:InstanceType": params["InstanceType"]}
        for made in ("instance", "volume", "network-interface"):
            yield from _made(named, made, params, at, kind)
        yield Ask(named, f"arn:aws:ec2:{at.region}::image/{params['ImageId']}", at.here())
        yield at.ec2_there(named, "key-pair", params["KeyName"])
        for interface in params["NetworkInterfaces"]:
            yield at.ec2_there(named, "subnet", interface["SubnetId"])
            for group in interface["Groups"]:
                yield at.ec2_there(named, "security-group", group)
        profile = params["IamInstanceProfile"]["Name"]
        yield passes(at, profile, "ec2.amazonaws.com")
        if "InstanceMarketOptions" in params:
            spot = "spot.amazonaws.com"
            role = f"role/aws-service-role/{spot}/AWSServiceRoleForEC2Spot"
            context = {"iam:AWSServiceName": spot}
            yield Ask("iam:CreateServiceLinkedRole", at.arn("iam", role), context)
            yield Ask(named, at.arn("ec2", "spot-instances-request/*"), at.here())

    return asks


def passes(at: At, role: str, service: str) -> Ask:
    """Handing a role on is an action of its own."""
    asked = at.iam_named("iam:PassRole", "role", role)
    return Ask(asked.action, asked.resource, {"iam:PassedToService": service})


def tags_table(action: str) -> Rule:
    def asks(params: Params, at: At) -> Iterator[Ask]:
        tags = {f"aws:RequestTag/{tag['Key']}": tag["Value"] for tag in params["Tags"]}
        for name in params["Resources"]:
            kind = {"rtb": "route-table"}[name.partition("-")[0]]
            there = at.ec2_there(f"ec2:{action}", kind, name)
            yield Ask(there.action, there.resource, {**there.context, **tags})

    return asks


def iam(kind: str, key: str, *implied: str) -> Callable[[str], Rule]:
    """An IAM action on a role or profile; `implied` actions are asked for as well."""

    def rule(action: str) -> Rule:
        def asks(params: Params, at: At) -> Iterator[Ask]:
            made = f"{params.get('Path', '')}{params[key]}".lstrip("/")
            for each in (action, *implied):
                if "Path" in params:
                    yield Ask(f"iam:{each}", at.arn("iam", f"{kind}/{made}"), at.here())
                else:
                    yield at.iam_named(f"iam:{each}", kind, params[key])

        return asks

    return rule


def adds_role(action: str) -> Rule:
    def asks(params: Params, at: At) -> Iterator[Ask]:
        yield at.iam_named(f"iam:{action}", "instance-profile", params["InstanceProfileName"])
        yield passes(at, params["RoleName"], "ec2.amazonaws.com")

    return asks


def schedule(action: str) -> Rule:
    def asks(params: Params, at: At) -> Iterator[Ask]:
        name = f"schedule/{params['GroupName']}/{params['Name']}"
        yield Ask(f"scheduler:{action}", at.arn("scheduler", name), at.here())
        if "Target" in params:
            role = params["Target"]["RoleArn"].rpartition("/")[2]
            yield passes(at, role, "scheduler.amazonaws.com")

    return asks


def queue(*implied: str) -> Callable[[str], Rule]:
    def rule(action: str) -> Rule:
        def asks(params: Params, at: At) -> Iterator[Ask]:
            name = params.get("QueueName") or params["QueueUrl"].rpartition("/")[2]
            for each in (action, *implied):
                yield Ask(f"sqs:{each}", at.arn("sqs", name), at.here())

        return asks

    return rule


def parameter(key: str) -> Callable[[str], Rule]:
    def rule(action: str) -> Rule:
        def asks(params: Params, at: At) -> Iterator[Ask]:
            name = params[key]
            owner = "" if name.startswith("/aws/service/") else ACCOUNT
            arn = f"arn:aws:ssm:{at.region}:{owner}:parameter{name}"
            yield Ask(f"ssm:{action}", arn, at.here())
            if action == "PutParameter" and params.get("Tags"):
                yield Ask("ssm:AddTagsToResource", arn, at.here())

        return asks

    return rule


def secret(action: str) -> Rule:
    def asks(params: Params, at: At) -> Iterator[Ask]:
        kept = secretsmanager_backends[ACCOUNT][at.region].secrets.get(params["SecretId"])
        name = at.arn("secretsmanager", f"secret:{params['SecretId']}-a1B2c3")
        arn = str(kept.arn) if kept is not None else name
        yield Ask(f"secretsmanager:{action}", arn, at.here())

    return asks


def bucket(*actions: str) -> Rule:
    """On a bucket as such; S3's actions often have another name than its operations."""

    def asks(params: Params, at: At) -> Iterator[Ask]:
        prefix = {"s3:prefix": params["Prefix"]} if "Prefix" in params else {}
        for action in actions:
            yield Ask(f"s3:{action}", f"arn:aws:s3:::{params['Bucket']}", prefix | at.here())

    return asks


def objects(action: str) -> Rule:
    def asks(params: Params, at: At) -> Iterator[Ask]:
        arn = f"arn:aws:s3:::{params['Bucket']}/{params['Key']}"
        yield Ask(f"s3:{action}", arn, at.here())

    return asks


def nothing(params: Params, at: At) -> Iterator[Ask]:
    """GetCallerIdentity: nobody can be forbidden to ask."""
    return iter(())
