"""Wrong runbooks: each is refused with what, where and how to mend it, and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.catalog import MAX_AGE_DAYS, load_catalog
from orchestrator.errors import CatalogError, GpurunError, OverCap, RunbookError
from orchestrator.plan import Plan, make_plan
from orchestrator.runbook import load_runbook
from tests.orchestrator.runbook_text import RUNBOOK, spoil, write_runbook

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Wrong:
    """One wrong runbook: its text, where the fault is, what is said and how to mend it."""

    name: str
    text: str
    where: str
    says: str
    fix: str


WRONG = [
    Wrong(
        "an unknown key",
        spoil("retries: 2", "retrys: 2"),
        "demo.yaml:23:5: jobs.grpo.retrys:",
        "unknown key 'retrys'",
        "Did you mean 'retries'?",
    ),
    Wrong(
        "an unknown key at the top",
        spoil("cap_usd: 10", "cap_usd: 10\ncap: 5"),
        "demo.yaml:3:1: cap:",
        "unknown key 'cap'",
        "cap_usd",
    ),
    Wrong(
        "a misspelled instance",
        spoil("g6e.4xlarge", "g6e.4xlage"),
        "demo.yaml:7:5: boxes.l40s.instance:",
        "no instance type 'g6e.4xlage'",
        "Did you mean 'g6e.4xlarge'?",
    ),
    Wrong(
        "a misspelled fallback",
        spoil("instance: g6e.4xlarge", "instance: g6e.4xlarge\n    fallbacks: [g6e.8xlrge]"),
        "boxes.l40s.fallbacks[0]:",
        "no instance type 'g6e.8xlrge'",
        "Did you mean 'g6e.8xlarge'?",
    ),
    Wrong(
        "a box without a GPU",
        spoil("g6e.4xlarge", "t3.nano"),
        "demo.yaml:7:5: boxes.l40s.instance:",
        "t3.nano has no GPU",
        "g6 and g6e",
    ),
    Wrong(
        "a fallback to itself",
        spoil("instance: g6e.4xlarge", "instance: g6e.4xlarge\n    fallbacks: [g6e.4xlarge]"),
        "boxes.l40s.fallbacks[0]:",
        "is tried already",
        "Take it out",
    ),
    Wrong("a cap of 0", spoil("cap_usd: 10", "cap_usd: 0"), "demo.yaml:2:1: cap_usd:", "0", "40"),
    Wrong(
        "a negative cap",
        spoil("cap_usd: 10", "cap_usd: -3"),
        "cap_usd:",
        "pays for nothing",
        "the most that this run may cost",
    ),
    Wrong(
        "a cap in words",
        spoil("cap_usd: 10", "cap_usd: forty dollars"),
        "demo.yaml:2:1: cap_usd:",
        "'forty dollars' isn't a number",
        "without quotes or units",
    ),
    Wrong(
        "a cap of true",
        spoil("cap_usd: 10", "cap_usd: true"),
        "cap_usd:",
        "True",
        "Write a number",
    ),
    Wrong(
        "a cap that is not a number",
        spoil("cap_usd: 10", "cap_usd: .nan"),
        "cap_usd:",
        "nan",
        "Write a plain number",
    ),
    Wrong(
        "a cap beyond reason",
        spoil("cap_usd: 10", "cap_usd: 1e300"),
        "cap_usd:",
        "beyond 100000",
        "the most",
    ),
    Wrong(
        "a drain after power-off",
        spoil("    hours: 1\n  l4:", "    hours: 1\n    drain: 2h\n  l4:"),
        "demo.yaml:9:5: boxes.l40s.drain:",
        "would begin before the launch",
        "drain < power-off < cloud",
    ),
    Wrong(
        "a drain without a unit",
        spoil("    hours: 1\n  l4:", "    hours: 1\n    drain: 15\n  l4:"),
        "boxes.l40s.drain:",
        "15 has no unit",
        "15m",
    ),
    Wrong(
        "infinite hours",
        spoil("    hours: 1\n  l4:", "    hours: .inf\n  l4:"),
        "boxes.l40s.hours:",
        "inf",
        "Write a plain number",
    ),
    Wrong(
        "negative hours",
        spoil("    hours: 1\n  l4:", "    hours: -2\n  l4:"),
        "boxes.l40s.hours:",
        "-2h is out of range",
        "Give 10s to 720h",
    ),
    Wrong(
        "hours without end",
        spoil("    hours: 1\n  l4:", "    hours: 99999999999999999999\n  l4:"),
        "boxes.l40s.hours:",
        "beyond any calendar",
        "Give hours",
    ),
    Wrong(
        "hours on a clock",
        spoil("    hours: 1\n  l4:", "    hours: 1:30\n  l4:"),
        "boxes.l40s.hours:",
        "'1:30' isn't a duration",
        "1h30m",
    ),
    Wrong(
        "a disk that is no number",
        spoil("    hours: 1\n  l4:", "    hours: 1\n    disk_gb: big\n  l4:"),
        "boxes.l40s.disk_gb:",
        "'big' isn't a whole number",
        "in GB",
    ),
    Wrong(
        "a need for a missing job",
        spoil("needs: [sft]", "needs: [stf]"),
        "demo.yaml:21:13: jobs.grpo.needs[0]:",
        "no job 'stf'",
        "Did you mean 'sft'?",
    ),
    Wrong(
        "an input from a missing job",
        spoil("{job: sft, path: out/model}", "{job: sfft, path: out/model}"),
        "jobs.grpo.inputs.model.job:",
        "no job 'sfft'",
        "Did you mean 'sft'?",
    ),
    Wrong(
        "a cycle",
        spoil("config: {seed: 0}", "config: {seed: 0}\n    needs: [grpo]"),
        "demo.yaml:13:3: jobs.sft:",
        "waits for itself: sft -> grpo -> sft",
        "Take one `needs` out",
    ),
    Wrong(
        "a job that needs itself",
        spoil("needs: [sft]", "needs: [sft, grpo]"),
        "jobs.grpo:",
        "waits for itself: grpo -> grpo",
        "Take one",
    ),
    Wrong(
        "two jobs of one name",
        spoil("  own:\n", "  sft:\n"),
        "demo.yaml:24:3: jobs.sft:",
        "'sft' is here twice; the first is in line 13",
        "Rename one",
    ),
    Wrong(
        "an unknown program",
        spoil("program: grpo", "program: gpro"),
        "demo.yaml:20:5: jobs.grpo.program:",
        "no program 'gpro'",
        "Did you mean 'grpo'?",
    ),
    Wrong(
        "unknown pins",
        spoil("pins: cpu", "pins: cpuu"),
        "demo.yaml:4:1: pins:",
        "no pins 'cpuu'",
        "Did you mean 'cpu'?",
    ),
    Wrong(
        "unknown pins of a job",
        spoil("retries: 2", "pins: unsloht"),
        "jobs.grpo.pins:",
        "no pins 'unsloht'",
        "Did you mean 'unsloth'?",
    ),
    Wrong(
        "a config that the program rejects",
        spoil("config: {seed: 0}", "config: {seed: 0, nois: 0.5}"),
        "demo.yaml:16:23: jobs.sft.config.nois:",
        "unknown key",
        "did you mean 'noise'?",
    ),
    Wrong(
        "a config value that the program rejects",
        spoil("config: {seed: 0}", "config: {seed: many}"),
        "demo.yaml:16:14: jobs.sft.config.seed:",
        "'many'",
        "integer",
    ),
    Wrong(
        "a region that doesn't exist",
        spoil("[us-east-1]", "[us-eastt-1]"),
        "demo.yaml:3:11: regions[0]:",
        "no region 'us-eastt-1'",
        "Did you mean 'us-east-1'?",
    ),
    Wrong("no region", spoil("[us-east-1]", "[]"), "regions:", "at least 1 item", "order of"),
    Wrong(
        "a name with a quote",
        spoil("name: demo", "name: de'mo"),
        "demo.yaml:1:1: name:",
        "can't name a runbook",
        "Use a-z",
    ),
    Wrong(
        "a name with a newline",
        spoil("  own:\n", '  "own\\nrm":\n'),
        "demo.yaml:24:3: jobs.own\\nrm:",
        "can't name a job",
        "Use a-z",
    ),
    Wrong(
        "a trailing newline in a name",
        spoil("name: demo", 'name: "demo\\n"'),
        "name:",
        "can't name a runbook",
        "Use a-z",
    ),
    Wrong(
        "a name that a shell would run",
        spoil("  own:\n", '  "$(poweroff)":\n'),
        "jobs.$(poweroff):",
        "can't name a job",
        "Use a-z",
    ),
    Wrong(
        "a name that climbs", spoil("  own:\n", "  ../own:\n"), "jobs.../own:", "can't name", "a-z"
    ),
    Wrong(
        "a name longer than its tag may be",
        spoil("name: demo", "name: a-name-of-seventeen"),
        "name:",
        "can't name a runbook",
        "at most 16",
    ),
    Wrong(
        "absolute results",
        spoil("results: [out]", "results: [/etc/shadow]"),
        "demo.yaml:28:15: jobs.own.results[0]:",
        "'/etc/shadow' leaves its folder",
        "a path below it",
    ),
    Wrong(
        "results that climb",
        spoil("results: [out]", "results: [out/../../x]"),
        "jobs.own.results[0]:",
        "leaves its folder",
        "without '..'",
    ),
    Wrong(
        "results that a shell would read",
        spoil("results: [out]", "results: ['$(id)']"),
        "jobs.own.results[0]:",
        "isn't a plain relative path",
        "out/model",
    ),
    Wrong(
        "an infinite learning rate",
        spoil("config: {seed: 0}", "config: {learning_rate: .inf}"),
        "jobs.sft.config.learning_rate:",
        "finite",
        "sft",
    ),
    Wrong(
        "a list in place of a mapping",
        spoil("inputs: {model: {job: sft, path: out/model}}", "inputs: [sft]"),
        "jobs.grpo.inputs:",
        "['sft'] isn't a mapping",
        "Results of other jobs",
    ),
    Wrong(
        "text in place of a list",
        spoil("needs: [sft]", "needs: sft"),
        "jobs.grpo.needs:",
        "'sft' isn't a list",
        "Jobs that must have ended",
    ),
    Wrong(
        "a number in place of text",
        spoil("name: demo", "name: 12"),
        "demo.yaml:1:1: name:",
        "12 isn't text; put it into quotes",
        "Start of every run id",
    ),
    Wrong(
        "a description that moves the cursor",
        spoil("cap_usd: 10", 'cap_usd: 10\ndescription: "\\e[2J"'),
        "demo.yaml:3:1: description:",
        "one line",
        "Shorten",
    ),
    Wrong(
        "a metric that isn't a name",
        spoil("retries: 2", "expect: {'a b': {min: 1}}"),
        "jobs.grpo.expect.a b:",
        "'a b' can't name a metric",
        "Use letters",
    ),
    Wrong(
        "a disk beyond EBS",
        spoil("    hours: 1\n  l4:", "    hours: 1\n    disk_gb: 999999999999999999999999\n  l4:"),
        "boxes.l40s.disk_gb:",
        "less than or equal to 16384",
        "in GB",
    ),
    Wrong("no results", spoil("results: [out]", "results: []"), "results:", "at least 1", "keep"),
    Wrong(
        "a workdir that isn't there",
        spoil("workdir: own", "workdir: owm"),
        "demo.yaml:27:5: jobs.own.workdir:",
        "no folder 'owm'",
        "Looked for",
    ),
    Wrong(
        "a workdir outside the runbook's tree",
        spoil("workdir: own", "workdir: /usr"),
        "jobs.own.workdir:",
        "outside the runbook's own tree",
        "Keep it below",
    ),
    Wrong(
        "requirements that aren't there",
        spoil("workdir: own", "requirements: own/req.txt"),
        "jobs.own.requirements:",
        "can't be read",
        "Looked for",
    ),
    Wrong(
        "a box that no job uses",
        spoil("box: l4\n", "box: l40s\n"),
        "demo.yaml:9:3: boxes.l4:",
        "no job runs on it",
        "take it out",
    ),
    Wrong(
        "a job on an unknown box",
        spoil("box: l4\n", "box: l44\n"),
        "demo.yaml:25:5: jobs.own.box:",
        "no box 'l44'",
        "Did you mean 'l4'?",
    ),
    Wrong(
        "a job that outlives the one that waits for it",
        spoil("command: python3", "needs: [sft]\n    command: python3").replace(
            "    hours: 1\n  l4:", "    hours: 2\n  l4:"
        ),
        "jobs.own.needs[0]:",
        "sft may still run on box l40s (2h) when box l4 powers off after 1h",
        "Give l4 at least as many hours as l40s",
    ),
    Wrong(
        "jobs that expect more time than their box has",
        spoil("    hours: 5m", "    hours: 3h"),
        "boxes.l40s.hours:",
        "expect 3h, but drain begins after 45m",
        "more hours",
    ),
    Wrong(
        "both a program and a command",
        spoil("program: grpo", "program: grpo\n    command: ls"),
        "jobs.grpo:",
        "either a program or a command",
        "exactly one",
    ),
    Wrong(
        "an expectation of nothing",
        spoil("retries: 2", "expect: {rise: {}}"),
        "jobs.grpo.expect.rise:",
        "expects nothing",
        "min, max or both",
    ),
    Wrong(
        "an expectation upside down",
        spoil("retries: 2", "expect: {rise: {min: 2, max: 1}}"),
        "jobs.grpo.expect.rise:",
        "min 2 is above max 1",
        "Swap",
    ),
    Wrong(
        "half a retry", spoil("retries: 2", "retries: 1.5"), "jobs.grpo.retries:", "1.5", "0 to 10"
    ),
    Wrong(
        "no boxes", "name: demo\ncap_usd: 1\n", "demo.yaml:1:1: boxes:", "is missing", "Give it"
    ),
    Wrong("an empty runbook", "", "demo.yaml:1:1:", "an empty runbook", "runbooks/smoke.yaml"),
    Wrong("only comments", "# later\n", "demo.yaml:1:1:", "an empty runbook", "smoke.yaml"),
    Wrong("a list", "- name: demo\n", "demo.yaml:1:1:", "this is a list", "smoke.yaml"),
    Wrong("not YAML", "name: [demo\n", "demo.yaml:2:1:", "not YAML", "docs/runbooks.md"),
    Wrong("a tab", "name:\tdemo\n\tcap: 1\n", "demo.yaml:1:6:", "not YAML", "docs/runbooks.md"),
    Wrong(
        "a tag that would run code",
        spoil("name: demo", "name: !!python/object/apply:os.system [id]"),
        "demo.yaml:1:1: name:",
        "a tag",
        "Take it out",
    ),
    Wrong(
        "an alias",
        spoil("    instance: g6.4xlarge", "    instance: *same"),
        "boxes.l4.instance:",
        "an alias, *same",
        "Write the value out",
    ),
    Wrong(
        "nesting without end", "a: " + "[" * 400 + "]" * 400, "demo.yaml:1:", "too deeply", "shape"
    ),
    Wrong(
        "two documents", RUNBOOK + "---\nname: two\n", ":29:1:", "second document", "one runbook"
    ),
]


def refusal(path: Path) -> str:
    with pytest.raises(RunbookError) as refused:
        load_runbook(path)
    assert refused.value.exit_code == 3
    return str(refused.value)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_a_wrong_runbook_is_refused_with_what_where_and_how_to_mend_it(
    wrong: Wrong, tmp_path: Path
) -> None:
    said = refusal(write_runbook(tmp_path, wrong.text))

    assert wrong.where in said
    assert wrong.says in said
    assert wrong.fix in said
    assert "nothing was created" in said


def test_the_right_runbook_is_accepted(tmp_path: Path) -> None:
    assert load_runbook(write_runbook(tmp_path)).name == "demo"


def test_all_faults_are_told_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = spoil("g6e.4xlarge", "g6e.4xlage").replace("needs: [sft]", "needs: [stf]")
    text = text.replace("seed: 0", "sed: 0").replace("retries: 2", "retrys: 2")

    said = refusal(write_runbook(tmp_path, text))

    assert "4 faults" in said
    order = [said.index(word) for word in ("g6e.4xlage", "config.sed", "stf", "retrys")]
    assert order == sorted(order)


def test_a_runbook_that_is_not_there_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path / "none.yaml")
    assert "can't be read: No such file" in said
    assert f"No .yaml file is in {tmp_path}." in said
    assert f"There is no folder {tmp_path}/nowhere." in refusal(tmp_path / "nowhere" / "x.yaml")


def test_a_mistyped_runbook_is_told_with_those_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runbooks").mkdir()
    for name in ("rehearsal.yaml", "smoke.yaml"):
        (tmp_path / "runbooks" / name).touch()
    monkeypatch.chdir(tmp_path)
    said = (
        f"Did you mean 'rehearsal.yaml'? In {tmp_path}/runbooks are: rehearsal.yaml, smoke.yaml."
    )
    assert said in refusal(Path("runbooks/rehersal.yaml"))
    assert said in refusal(Path("rehearsal.yaml"))


def test_a_folder_in_place_of_a_runbook_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    said = refusal(tmp_path)
    assert "can't be read: Is a directory" in said
    assert f"In {tmp_path} are: mine.yaml." in said


def test_a_runbook_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_bytes("name: d\xe9mo\n".encode("latin-1"))

    assert "isn't UTF-8 text" in refusal(path)


def test_a_runbook_of_a_megabyte_is_refused(tmp_path: Path) -> None:
    assert "bytes" in refusal(write_runbook(tmp_path, "#" * 1_000_001))


@pytest.mark.parametrize(
    "line",
    ["torch", "torch>=2", "torch==2.13.0", "-r other.txt", "git+https://x/y", "./wheel.whl"],
)
def test_requirements_without_hashes_are_refused(line: str, tmp_path: Path) -> None:
    path = write_runbook(tmp_path, spoil("workdir: own", "requirements: own/req.txt"))
    (tmp_path / "own" / "req.txt").write_text(f"# mine\n{line}\n")

    said = refusal(path)

    assert "isn't hash-locked: line 2" in said
    assert "uv pip compile --generate-hashes" in said


def plan(path: Path, *, now: datetime = NOW, cap_usd: Decimal | None = None) -> Plan:
    return make_plan(
        load_runbook(path), now=now, catalog=load_catalog(), cloud="local", cap_usd=cap_usd
    )


def _raised(wrong: Callable[[], object]) -> GpurunError:
    with pytest.raises(GpurunError) as raised:
        wrong()
    return raised.value


def test_a_region_without_the_type_is_refused_with_those_that_have_it(tmp_path: Path) -> None:
    path = write_runbook(tmp_path, spoil("[us-east-1]", "[eu-west-1]"))

    error = _raised(lambda: plan(path))

    assert isinstance(error, CatalogError)
    assert error.exit_code == 5
    assert "eu-west-1 doesn't offer g6e.4xlarge" in str(error)
    assert "us-east-1" in error.hint


def test_prices_of_last_summer_are_refused_unless_allowed(tmp_path: Path) -> None:
    path = write_runbook(tmp_path)
    later = NOW + timedelta(days=MAX_AGE_DAYS)

    error = _raised(lambda: plan(path, now=later))

    assert error.exit_code == 5
    assert "182 days old" in str(error)
    assert "--allow-stale-prices" in error.hint
    allowed = make_plan(
        load_runbook(path),
        now=later,
        catalog=load_catalog(),
        cloud="local",
        allow_stale_prices=True,
    )
    assert any("182 days old" in warning for warning in allowed.warnings)


def test_a_worst_case_over_the_cap_is_refused_with_the_numbers(tmp_path: Path) -> None:
    path = write_runbook(tmp_path, spoil("cap_usd: 10", "cap_usd: 5"))

    error = _raised(lambda: plan(path))

    assert isinstance(error, OverCap)
    assert error.exit_code == 4
    needed = plan(path, cap_usd=Decimal(100)).worst_case_usd
    assert f"${needed}" in str(error)
    assert "$5.00" in str(error)
    assert f"--cap {needed}" in error.hint


@pytest.mark.parametrize("cap", ["0", "-1", "NaN", "Infinity"])
def test_a_cap_on_the_command_line_must_be_an_amount(cap: str, tmp_path: Path) -> None:
    path = write_runbook(tmp_path)

    error = _raised(lambda: plan(path, cap_usd=Decimal(cap)))

    assert isinstance(error, RunbookError)
    assert "--cap 40" in error.hint


def test_a_disk_smaller_than_its_image_is_refused(tmp_path: Path) -> None:
    @dataclass
    class Image:
        id: str = "ami-1"
        snapshot_gb: int = 300

    runbook = load_runbook(write_runbook(tmp_path))

    error = _raised(
        lambda: make_plan(runbook, now=NOW, catalog=load_catalog(), cloud="aws", ami=Image())
    )

    assert "less than the 300 GB of ami-1" in str(error)
    assert "at least 309" in error.hint  # and room for the pins of its jobs
