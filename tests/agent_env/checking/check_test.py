"""Each fault of a bundle is found, named by its rule, and comes with what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_env.checking import Checked, check
from agent_env.checking.behaviour import QUICK_S
from agent_env.checking.finding import FIXES
from agent_env.checking.probe import seed_of
from agent_env.cli import main
from agent_env.errors import BundleNotFound
from agent_env.server.episode import derived_seed
from agent_env.server.pace import SLOW_S

FAULTY = Path(__file__).parent / "faulty"

GOOD = '''
from agent_env import Bundle, Task, TaskData, tool
from agent_env.errors import ToolError

class Say(Task):
    def reset(self, seed):
        self.said = ""

    @tool
    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: What to say.
        """
        self.said = word
        return "Heard."

    def score(self):
        return {"right": float(self.said == "fern")}

class Saying(Bundle):
    name = "saying"
    splits = ("train", "eval")

    def tasks(self, split):
        return [
            TaskData(id=f"{split}/{n}", name="say", split=split, index=n, prompt="Say fern.")
            for n in range(2)
        ]

    def open(self, data):
        return Say(data)

bundle = Saying()
'''


def written(folder: Path, *changes: tuple[str, str]) -> Path:
    """A good bundle, with faults built in."""
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "__init__.py").write_text(text)
    return folder


def rules(checked: Checked) -> set[str]:
    return {finding.rule for finding in checked.findings}


@pytest.fixture(scope="module")
def checked() -> Checked:
    return check(FAULTY)


@pytest.mark.parametrize(
    "split, rule, what",
    [
        ("hash-seed", "hash-seed", "played in two processes: reset answered once '"),
        ("random", "random", "played on two objects: reset answered once '0."),
        ("clock", "random", "played on two objects: reset answered"),
        ("shared", "random", "played on two objects: reset answered"),
        ("forgetful", "reset", "played again after a reset: end_turn {'response': ''} answered"),
        ("not-replayable", "not-replayable", "replayable = False and has no snapshot()"),
        ("bad-snapshot", "snapshot", "after restore(), score() is"),
        ("breaks", "breaks", "RuntimeError: boom"),
        ("never-ends", "never-ends", "64 turns were ended"),
        ("score-range", "score-range", "the score 'right' is 1.5"),
        ("not-a-number", "score-range", "the score 'right' is nan"),
        ("not-a-number", "reward-range", "the reward is nan"),
        ("score-range", "reward-range", "the reward is 1.5"),
        ("two-scores", "reward-undefined", "the task recorded: fast, right"),
        ("idle", "idle", "nothing is done is worth 1.000"),
        ("slow", "quick", "end_turn took "),
        ("other-tools", "tools-differ", "the split offers say; OtherTools has say, shout"),
        ("tasks-vary", "tasks-vary", "other tasks in another process"),
        ("tasks-change", "tasks-vary", "other tasks when asked again"),
        ("place", "place", "tasks('place')[1] says split 'place', index 0"),
        ("empty-prompt", "empty-prompt", "the prompt of empty-prompt/1 is empty"),
        ("expert-wrong", "expert", "it is worth 0.000"),
        ("expert-refused", "expert", "not accepted: say: that is no word"),
        ("expert-raises", "breaks", "expert(): LookupError: no idea"),
        ("no-docs: say", "tool-docs", "the argument 'word' has no description"),
        ("no-docs: say", "tool-docs", "it has no description"),
        ("no-types: say", "tool-types", "the argument 'word' may be anything"),
        ("bundle", "id-twice", "first 'same'"),
    ],
)
def test_a_fault_is_found_where_it_is(checked: Checked, split: str, rule: str, what: str) -> None:
    found = [
        finding.what
        for finding in checked.findings
        if finding.rule == rule
        and (finding.where == split or finding.where.startswith(f"{split}: "))
    ]
    assert any(what in said for said in found), found


@pytest.mark.parametrize("split", ["fine", "loud", "good-snapshot"])
def test_a_split_without_a_fault_is_left_alone(checked: Checked, split: str) -> None:
    assert not [finding for finding in checked.findings if finding.where.startswith(split)]


def test_a_split_shows_no_other_fault_than_its_own(checked: Checked) -> None:
    for split, others in {
        "hash-seed": {"hash-seed"},
        "forgetful": {"reset"},
        "slow": {"quick"},
        "expert-wrong": {"expert"},
        "random": {"random"},
    }.items():
        found = {f.rule for f in checked.findings if f.where.startswith(f"{split}: ")}
        assert found == others


def test_a_finding_counts_its_tasks_and_says_what_to_do(checked: Checked) -> None:
    (wrong,) = [f for f in checked.findings if f.where.startswith("expert-wrong")]
    assert wrong.where == "expert-wrong: 3 of 3 tasks, first expert-wrong/0"
    assert wrong.fix == FIXES["expert"]
    assert all(finding.fix for finding in checked.findings)


def test_a_bundle_that_cannot_be_loaded_is_a_finding(tmp_path: Path) -> None:
    for change, what in (
        (('"""Say a word.\n', '"""\n'), "Say.say: a tool needs a docstring"),
        (("word: str", "word"), "the argument 'word' has no type"),
        (("import Bundle", "import Bundel"), "ImportError"),
    ):
        (finding,) = check(written(tmp_path, change)).findings
        assert finding.rule == "load"
        assert what in finding.what


@pytest.mark.parametrize(
    "change, rule, what",
    [
        (('("train", "eval")', "()"), "splits", "splits is ()"),
        (('("train", "eval")', '"train"'), "splits", "splits is 'train'"),
        (('("train", "eval")', '("train", "train")'), "splits", "named twice: train, train"),
        (("range(2)", 'range(2 * (split == "train"))'), "dead-split", "it has no tasks"),
        (("        return [", '        split = {"train": "train"}[split]\n        return ['),
         "dead-split", "tasks('eval'): KeyError: 'eval'"),
        (("return Say(data)", "return Say()"), "breaks", "a task can't be opened: TypeError"),
    ],
)  # fmt: skip
def test_a_bundle_that_cannot_be_played_says_why(
    tmp_path: Path, change: tuple[str, str], rule: str, what: str
) -> None:
    checked = check(written(tmp_path, change))
    assert checked.played == 0
    assert [what in finding.what for finding in checked.findings if finding.rule == rule] != []
    assert rules(checked) <= {rule, "splits", "id-twice"}


@pytest.mark.parametrize("name", ['name = "say it"', ""])
def test_a_name_that_addresses_cannot_hold_is_a_fault(tmp_path: Path, name: str) -> None:
    checked = check(written(tmp_path, ('name = "saying"', name)), sample=1)
    assert rules(checked) == {"name"}


def test_a_task_that_ends_its_process_is_named(tmp_path: Path) -> None:
    change = ('        self.said = ""', "        import os; os._exit(9)")
    (crash,) = check(written(tmp_path, change)).findings
    assert (crash.rule, crash.where) == ("crash", "train/0")
    assert "ended with 9" in crash.what


def test_a_task_that_never_ends_is_named(tmp_path: Path) -> None:
    change = ('        self.said = ""', "        import threading; threading.Event().wait()")
    (hangs,) = check(written(tmp_path, change), timeout_s=3).findings
    assert (hangs.rule, hangs.where) == ("hangs", "train/0")


def test_every_rule_has_a_test() -> None:
    here = Path(__file__).read_text()
    assert [rule for rule in FIXES if f'"{rule}"' not in here] == []


@pytest.mark.parametrize("bundle", ["gridsim", "inbox"])
def test_the_bundles_of_this_package_have_no_fault(bundle: str) -> None:
    checked = check(bundle, sample=6)
    assert checked.findings == ()
    assert checked.played == 6 * checked.splits


def test_the_command_prints_findings_and_ends_with_1(tmp_path: Path) -> None:
    change = ("self.said == ", "self.said != ")
    ended = CliRunner().invoke(main, ["check", str(written(tmp_path, change)), "--tasks", "1"])
    assert ended.exit_code == 1
    first, what, fix, *_ = ended.output.splitlines()
    assert first == "idle · train: 1 of 1 tasks, first train/0"
    assert what == "  an episode in which nothing is done is worth 1.000"
    assert fix == f"  {FIXES['idle']}"
    assert ended.output.splitlines()[-1] == (
        "saying: 2 faults; 2 splits, 4 tasks, 2 of them played in two processes"
    )


def test_the_command_ends_with_0_for_a_bundle_without_a_fault(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["check", str(written(tmp_path))])
    said = "saying: no fault; 2 splits, 4 tasks, 4 of them played in two processes\n"
    assert (ended.exit_code, ended.output) == (0, said)


def test_the_check_plays_as_the_server_does() -> None:
    assert QUICK_S == SLOW_S
    assert seed_of("gridsim/train/7") == derived_seed("gridsim/train/7")


def test_no_bundle_at_all_is_a_mistake_in_the_command() -> None:
    with pytest.raises(BundleNotFound):
        check("no-such-bundle")
    assert CliRunner().invoke(main, ["check", "no-such-bundle"]).exit_code == 2
