"""What a runbook says, field by field. Each description is the documentation of its field.

These models know one field at a time; what fields say to each other is in `checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictInt, model_validator

from orchestrator.fields import (
    BoxHours,
    BoxName,
    Command,
    Frozen,
    GpuName,
    InputName,
    JobHours,
    JobName,
    LocalPath,
    Margin,
    MetricName,
    NotNegative,
    Number,
    OneLine,
    RelativePath,
    RunbookName,
    SecretName,
    SecretSource,
    Source,
    Usd,
    refuse,
)

AMI_PARAMETER = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)
NO_PINS = "none"
"""The pins of a job that runs on the box's own Python."""


class RangeSpec(Frozen):
    """Where a number of the job's result must lie, ends included."""

    min: Number | None = Field(None, description="Smallest value that is as expected.")
    max: Number | None = Field(None, description="Largest value that is as expected.")

    @model_validator(mode="after")
    def _has_an_end(self) -> RangeSpec:
        if self.min is None and self.max is None:
            refuse("expects nothing", "Give min, max or both.")
        if self.min is not None and self.max is not None and self.min > self.max:
            refuse(f"min {self.min} is above max {self.max}", "Swap them.")
        return self


class ReferenceSpec(Frozen):
    """A number that somebody measured before, to be told beside the job's own."""

    value: Number = Field(description="What was measured then.")
    tolerance: NotNegative = Field(
        description="How far from it, in the same unit, still counts as the same."
    )
    source: Source = Field(
        description="Where it is from, as the report tells it: `seed run A, L40S`."
    )


class JobInput(Frozen):
    """A result of another job, brought into this one's inputs folder before it starts."""

    job: JobName = Field(description="Job that makes it; it is needed from then on.")
    path: RelativePath = Field(description="File or folder among that job's results.")


class BoxSpec(Frozen):
    """A machine with a GPU, and how long it may live."""

    instance: str = Field(description="EC2 instance type, one of the g6 and g6e families.")
    fallbacks: tuple[str, ...] = Field(
        (),
        description="Instance types to try, in order, when no zone has `instance`. "
        "The worst case is priced at the dearest of them.",
    )
    hours: BoxHours = Field(
        description="From launch to power-off: a number of hours, or text such as 45m. "
        "10s to 30 days."
    )
    drain: Margin = Field(
        timedelta(minutes=15),
        description="How long before power-off the jobs are told to stop, so that they can "
        "checkpoint and everything reaches S3. Text with its unit.",
    )
    cloud_margin: Margin = Field(
        timedelta(minutes=10),
        description="How long after power-off the cloud itself terminates the box, should the "
        "box have failed to. Text with its unit.",
    )
    disk_gb: Annotated[StrictInt, Field(ge=100, le=16_384)] = Field(
        200, description="Root volume in GB (gp3, encrypted), 100 to 16384."
    )
    spot: StrictBool = Field(
        False,
        description="Launch as a spot instance, paying at most the on-demand price, at which it "
        "is reserved. Its jobs go on elsewhere when it's taken away.",
    )


class JobSpec(Frozen):
    """One process on one box: one of our programs, or a command of yours."""

    box: BoxName = Field("", description="Box it runs on; or give `gpu`.")
    gpu: GpuName = Field(
        "",
        description="GPU it needs, as the plan calls it: `L4`, `L40S`. The plan then finds it a "
        "box that has one. Such a job must have `hours`.",
    )
    program: str | None = Field(
        None,
        description="One of our programs: sft, grpo, async_grpo, verl_grpo, skyrl_grpo, evaluate, "
        "outage.",
    )
    config: Mapping[str, Any] = Field(
        default_factory=dict, description="Settings of the program, checked when the plan is made."
    )
    command: Command | None = Field(
        None, description="Your own shell command, in place of `program`; runs in `workdir`."
    )
    workdir: LocalPath | None = Field(
        None,
        description="Folder that `command` starts in, relative to the runbook. Git-ignored files "
        "stay at home.",
    )
    requirements: LocalPath | None = Field(
        None,
        description="Hash-locked requirements file for `command`, relative to the runbook, in "
        "place of `pins`.",
    )
    pins: str | None = Field(
        None, description="Pins to install for this job; without it the runbook's `pins`."
    )
    needs: tuple[JobName, ...] = Field(
        (), description="Jobs that must have ended well before this one starts."
    )
    inputs: Mapping[InputName, JobInput] = Field(
        default_factory=dict,
        description="Results of other jobs, by the name this job knows them under.",
    )
    results: tuple[RelativePath, ...] = Field(
        ("out",),
        min_length=1,
        description="Files and folders to keep, relative to the folder the job runs in. Its log "
        "and metrics are always kept.",
    )
    hours: JobHours | None = Field(
        None,
        description="Expected time, a number of hours or text such as 20m, for the expected price "
        "only. Without it: the whole time of the box.",
    )
    retries: Annotated[StrictInt, Field(ge=0, le=10)] = Field(
        1, description="How often a failed job is started again from its last checkpoint, 0 to 10."
    )
    stall: Margin | None = Field(
        None,
        description="How long it may report no new step before it counts as frozen: then its "
        "stacks are kept, it is ended, and it is tried again or fails. Without it: an hour, or "
        "ten steps' expected time, for programs that tell their steps; never for a command. A "
        "command that has it must append its `step` to the file in $GPURUN_METRICS, or it counts "
        "as frozen.",
    )
    expect: Mapping[MetricName, RangeSpec] = Field(
        default_factory=dict,
        description="Ranges for numbers of the job's final metrics; outside them the run ends "
        "with its own exit code.",
    )
    reference: Mapping[MetricName, ReferenceSpec] = Field(
        default_factory=dict,
        description="Numbers measured elsewhere that the report tells beside those of the job's "
        "final metrics. They fail nothing.",
    )

    @model_validator(mode="after")
    def _is_one_kind(self) -> JobSpec:
        if self.box and self.gpu:
            refuse("has both box and gpu", "Keep one: a named box, or any that has the GPU.")
        if not self.box and not self.gpu:
            refuse("needs either a box or a gpu", "Give exactly one of the two.")
        if self.gpu and self.hours is None:
            refuse("a job with a gpu needs hours", "Say how long it takes: a box is chosen by it.")
        if (self.program is None) == (self.command is None):
            refuse("needs either a program or a command", "Give exactly one of the two.")
        if self.program is None and self.config:
            refuse("config belongs to a program", "Put a command's settings into its workdir.")
        if self.command is None and (self.workdir or self.requirements):
            refuse("workdir and requirements belong to a command", "Take them out.")
        if self.requirements and self.pins:
            refuse("has both requirements and pins", "Keep one: a job gets one environment.")
        return self


class RunbookSpec(Frozen):
    """Which GPU jobs to run, on which boxes, for at most how much."""

    name: RunbookName = Field(description="Start of every run id: a-z, 0-9, '-', at most 16.")
    description: OneLine = Field("", description="One line for people.")
    cap_usd: Usd = Field(description="The most that a run may cost, in USD; `--cap` overrides it.")
    regions: tuple[str, ...] = Field(
        min_length=1,
        description="AWS regions in order of preference; the first that offers every instance "
        "type is taken.",
    )
    pins: str = Field(
        NO_PINS, description="Pins of jobs that name none; `none` is the box's own Python."
    )
    loss_bound: Margin = Field(
        timedelta(minutes=5),
        description="The most work, as time, that a dying box may lose. Text with its unit.",
    )
    results_gb: Annotated[Number, Field(gt=0, le=10_000)] = Field(
        Decimal(5),
        description="Allowance in GB for results: a month in S3 and one pull over the internet "
        "are part of the worst case. Boxes share it equally and upload no more.",
    )
    ami_parameter: Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]{1,400}$")] = Field(
        AMI_PARAMETER, description="SSM public parameter that names the boxes' AMI."
    )
    secrets: Mapping[SecretName, SecretSource] = Field(
        default_factory=dict,
        description="Environment variables of the jobs that hold secrets, each by where it is "
        "kept: `ssm:/path`, `secretsmanager:name`, or `env` for this machine's own variable.",
    )
    boxes: Mapping[BoxName, BoxSpec] = Field(description="Boxes by name.")
    jobs: Mapping[JobName, JobSpec] = Field(description="Jobs by name.")

    def pins_of(self, job: JobSpec) -> str | None:
        """Name of the pins that a job gets; None on its own requirements or the box's Python."""
        if job.requirements:
            return None
        name = job.pins or self.pins
        return None if name == NO_PINS else name

    def needed_by(self, job: JobSpec) -> tuple[str, ...]:
        """The jobs in `needs`, then those that only `inputs` name."""
        sources = (item.job for item in job.inputs.values())
        return tuple(dict.fromkeys((*job.needs, *sources)))
