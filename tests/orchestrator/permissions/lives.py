"""Whole lives of runs against strict moto, one after the other, as a person leads them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator import results
from orchestrator.aws import evidence, network, role, schedules, sweep
from orchestrator.aws.bucket import find_run_bucket, result_buckets
from orchestrator.aws.instances import terminate
from orchestrator.aws.role_policies import PATH, kill_role_arn
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers, teardown
from orchestrator.aws.tags import RunTags
from orchestrator.catalog import load_catalog
from orchestrator.errors import CapacityError, GpurunError
from orchestrator.localcloud.strict import StrictRules
from orchestrator.plan import make_plan
from orchestrator.run import read_record
from orchestrator.runbook import load_runbook
from orchestrator.runner import Runner
from orchestrator.start import check_quota, start_run

from .recorder import Recorder

REGION = "us-east-1"
SECRETS = "{HF_TOKEN: env, WANDB: 'ssm:/team/wandb', NPM: 'secretsmanager:team/npm'}"
RUNBOOK = """
name: lives
cap_usd: 9
regions: [us-east-1]
pins: none
secrets: {secrets}
boxes:
  l4: {{instance: g6.4xlarge, hours: 0.5, drain: 5m, spot: {spot}}}
jobs:
  one: {{box: l4, command: 'true', hours: 0.1}}
"""


class Clock:
    """Time that passes only while somebody waits; `meanwhile` is what happens then."""

    def __init__(self) -> None:
        self.at = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
        self.meanwhile: Callable[[], object] = lambda: None

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.meanwhile()


@dataclass
class Lives:
    """One account; what is done in it by others than gpurun isn't recorded."""

    session: Session
    rules: StrictRules
    clock: Clock
    recorder: Recorder
    desk: Path

    def lead_all(self) -> None:
        self._keep_secrets()
        self._plain()
        self._with_secrets_and_spot()
        self._full_everywhere()
        self._ended_early()
        self._forgotten()
        self._mended()

    def _begin(self, *, secrets: str = "{}", spot: bool = False) -> Runner:
        path = self.desk / "lives.yaml"
        path.write_text(RUNBOOK.format(secrets=secrets, spot=str(spot).lower()))
        plan = make_plan(
            load_runbook(path), now=self.clock.now(), catalog=load_catalog(), cloud="local"
        )
        begun = start_run(self.session, plan, self.clock, boxes_are_processes=False)
        return Runner(self.session, *begun, self.clock)

    def _plain(self) -> None:
        runner = self._begin()
        self.clock.meanwhile = self._boxes_power_off
        runner.drive()
        self.clock.meanwhile = lambda: None
        run_id = runner.record.run_id
        with contextlib.suppress(GpurunError):  # no box wrote anything
            results.pull(runner.bucket, run_id, self.desk / "to", ["one"])
        self.session.client("sts").get_caller_identity()
        for bucket in result_buckets(self.session):
            list(bucket.folders("runs/"))
        read_record(find_run_bucket(self.session, run_id), run_id)

    def _with_secrets_and_spot(self) -> None:
        runner = self._begin(secrets=SECRETS, spot=True)
        runner.launch_all()
        runner.look()
        check_quota(self.session, runner.record.plan)
        (box,) = runner.instances()
        evidence.launched(self.session, box.instance_id)
        evidence.is_private(self.session, runner.bucket.name)
        runner.drain_boxes()
        runner.finish()

    def _full_everywhere(self) -> None:
        before = dict(self.rules.capacity)
        zones = [f"{REGION}{letter}" for letter in "abcdef"]
        self.rules.capacity |= {("g6.4xlarge", zone): 0 for zone in zones}
        with contextlib.suppress(CapacityError):
            self._begin().launch_all()
        self.rules.capacity.clear()
        self.rules.capacity.update(before)

    def _ended_early(self) -> None:
        """A box that is protected, a schedule that is put right, an interface that stays."""
        runner = self._begin()
        runner.launch_all()
        (box,) = runner.instances()
        with self._unrecorded():
            ec2 = self.session.client("ec2")
            ec2.modify_instance_attribute(
                InstanceId=box.instance_id, DisableApiTermination={"Value": True}
            )
            (vpc,) = network.find_vpcs(self.session, runner.record.run_id)
            subnet = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc]}])
            ec2.create_network_interface(
                SubnetId=subnet["Subnets"][0]["SubnetId"],
                TagSpecifications=runner.tags.spec("network-interface", role="box"),
            )
            ec2.create_route_table(
                VpcId=vpc, TagSpecifications=runner.tags.spec("route-table", role="routes")
            )
        later = self.clock.now() + timedelta(hours=1)
        arn = kill_role_arn(self.session, runner.record.run_id)
        schedules.ensure_kill(self.session, runner.tags, "l4", box.instance_id, later, arn)
        terminate(self.session, [box.instance_id])
        runner.finish()
        leftovers(self.session)

    def _forgotten(self) -> None:
        """Nobody looks after a run until a sweep finds it."""
        runner = self._begin(secrets=SECRETS)
        runner.launch_all()
        self.clock.at += timedelta(hours=3)
        sweep.regions(self.session)
        sweep.sweep(self.session, self.clock.now(), [REGION])

    def _mended(self) -> None:
        """A network whose gateway and group were changed by hand, a loose volume, a role that
        nobody may take.
        """
        runner = self._begin()
        tags: RunTags = runner.tags
        zones = [f"{REGION}a"]
        network.ensure_network(self.session, tags, zones, "192.0.2.7/32")
        with self._unrecorded():
            self._spoil(runner.record.run_id, tags)
        network.ensure_network(self.session, tags, zones, "192.0.2.8/32")
        role.ensure_kill_role(self.session, tags)
        teardown(self.session, runner.record.run_id, self.clock.now())

    def _spoil(self, run_id: str, tags: RunTags) -> None:
        ec2: Any = self.session.client("ec2")
        (vpc,) = network.find_vpcs(self.session, run_id)
        (gateway,) = ec2.describe_internet_gateways(
            Filters=[{"Name": "attachment.vpc-id", "Values": [vpc]}]
        )["InternetGateways"]
        name = gateway["InternetGatewayId"]
        ec2.detach_internet_gateway(InternetGatewayId=name, VpcId=vpc)
        ec2.delete_internet_gateway(InternetGatewayId=name)
        groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])
        group = next(g for g in groups["SecurityGroups"] if g["GroupName"] != "default")
        kill = f"gpurun-{run_id}-kill"
        self.session.client("iam").create_role(
            RoleName=kill, Path=PATH, AssumeRolePolicyDocument="{}"
        )
        pair = [{"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2}]
        pair[0]["UserIdGroupPairs"] = [{"GroupId": group["GroupId"]}]
        ec2.authorize_security_group_egress(GroupId=group["GroupId"], IpPermissions=pair)
        ec2.create_volume(
            AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=tags.spec("volume", role="x")
        )

    def _keep_secrets(self) -> None:
        with self._unrecorded():
            ssm, manager = self.session.client("ssm"), self.session.client("secretsmanager")
            ssm.put_parameter(Name="/team/wandb", Value="x" * 9, Type="SecureString")
            manager.create_secret(Name="team/npm", SecretString="x" * 9)

    def _boxes_power_off(self) -> None:
        with self._unrecorded():
            ec2 = self.session.client("ec2")
            for page in ec2.describe_instances()["Reservations"]:
                ids = [i["InstanceId"] for i in page["Instances"]]
                ec2.terminate_instances(InstanceIds=ids)

    @contextlib.contextmanager
    def _unrecorded(self) -> Any:
        self.recorder.paused = True
        try:
            yield
        finally:
            self.recorder.paused = False
