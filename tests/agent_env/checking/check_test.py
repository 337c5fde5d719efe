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
WAITS = "__import__('threading').Event().wait()"
"""For ever, and takes no core for it."""

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
        ("expert-raises", "raises", "expert(): LookupError: no idea"),
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
        (('"""Say a word.\n', '"""\n'), "a tool needs a docstring"),
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
        (("return Say(data)", "return Say()"), "raises", "a task can't be opened: TypeError"),
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
    assert crash.what == "its process ended with 9 at reset: no message"


def test_a_task_that_never_ends_is_named(tmp_path: Path) -> None:
    change = ('        self.said = ""', "        import threading; threading.Event().wait()")
    (hangs,) = check(written(tmp_path, change), timeout_s=3).findings
    assert (hangs.rule, hangs.where) == ("hangs", "train/0")
    assert hangs.what == "it was not over after 3 s, and was at reset"


@pytest.mark.parametrize(
    "old, new, where, at",
    [
        ('        return "Heard."', "        while True: pass", "train/0", "say"),
        ("        return [", f"        {WAITS}\n        return [", "bundle", "tasks('train')"),
        ("        return Say(data)", f"        {WAITS}", "bundle", "open() of train"),
        ("bundle = Saying()", WAITS, "bundle", "the import"),
    ],
)  # fmt: skip
def test_what_never_ends_is_named_and_ended(
    tmp_path: Path, old: str, new: str, where: str, at: str
) -> None:
    seen: list[str] = []
    (hangs,) = check(
        written(tmp_path, (old, new)), step_s=2, progress=lambda *told: seen.append(told[2])
    ).findings
    assert (hangs.rule, hangs.where) == ("hangs", where)
    assert hangs.what == f"{at} was not over after 2 s"
    assert seen[-1] == (at if where == "bundle" else f"{where}: {at}")


@pytest.mark.parametrize(
    "old, new",
    [
        ("bundle = Saying()", "import os; os._exit(4)"),
        ("        return [", "        import os; os._exit(4)\n        return ["),
    ],
)
def test_a_bundle_that_ends_its_process_does_not_end_the_check(
    tmp_path: Path, old: str, new: str
) -> None:
    (crash,) = check(written(tmp_path, (old, new))).findings
    assert (crash.rule, crash.where) == ("crash", "bundle")
    assert "ended with 4 at " in crash.what


RIGHT = '        return {"right": float(self.said == "fern")}'


@pytest.mark.parametrize(
    "old, new, rule, what",
    [
        (RIGHT, "        return 1.0", "raises", "score() returned a float, not a dict"),
        (RIGHT, '        return {"right": None}', "score-range", "the score 'right' is None"),
        (RIGHT, '        return {"right": "1"}', "score-range", "the score 'right' is 1"),
        (RIGHT, '        return {}["right"]', "raises", "score(): KeyError: 'right' (/"),
        (RIGHT, "        import sys; sys.exit(3)", "raises", "score(): SystemExit: 3 (/"),
        ("    def score(self):\n" + RIGHT, "", "raises", "Say has no score()"),
        ('        self.said = ""\n', '        self.said = ""\n        return 5\n', "raises",
         "reset() returned 5, not text or None"),
        ('        self.said = ""\n', "        {}['x']\n", "raises", "reset: KeyError: 'x' (/"),
        ("    def score(", "    def end_turn(self, said):\n        return 5\n\n    def score(",
         "raises", "end_turn() returned 5"),
        ("    def open(", "    def reward(self, scores):\n        return 'x'\n\n    def open(",
         "reward-range", "the reward is x"),
        ("    def open(",
         "    def expert(self, data, **_):\n        return ['x']\n\n    def open(", "raises",
         "expert() returned 'x' among its calls"),
        ("return Say(data)", "return None", "raises", "open() returned a NoneType, not a Task"),
        ('prompt="Say fern."', "prompt=None", "tasks", "tasks('train'): ValidationError: "),
        ("for n in range(2)", "for n in sys.exit(4)", "tasks", "tasks('train'): SystemExit: 4"),
        ('prompt="Say fern."', 'prompt="Say fern.", data={"x": open}', "tasks",
         "tasks('train')[0] is no JSON data"),
        ("            TaskData(", "            dict(", "tasks", "is a dict, not TaskData"),
    ],
)  # fmt: skip
def test_what_a_server_could_not_take_is_named(
    tmp_path: Path, old: str, new: str, rule: str, what: str
) -> None:
    folder = written(
        tmp_path,
        (old, new),
        ("from agent_env import Bundle", "import sys\nfrom agent_env import Bundle"),
    )
    found = [finding.what for finding in check(folder, sample=1).findings if finding.rule == rule]
    assert any(what in said for said in found), found


def test_what_a_server_takes_is_no_fault(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    numpy = '        import numpy\n        return {"right": numpy.%s(self.said == "fern")}'
    for kind in ("float32", "bool_"):
        assert check(written(tmp_path, (RIGHT, numpy % kind)), sample=1).findings == ()


CLOCKS = (
    "int(time.time())",
    "time.time_ns() // 10**9",
    "time.strftime('%H:%M')",
    "time.gmtime().tm_yday",
    "datetime.date.today()",
    "datetime.datetime.now().replace(microsecond=0)",
)


def test_a_slow_clock_is_a_clock(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        ('("train", "eval")', repr(CLOCKS)),
        (
            '        self.said = ""',
            '        self.said = ""\n        return str(eval(self.data.split))',
        ),
        ("from agent_env import Bundle", "import datetime, time\nfrom agent_env import Bundle"),
    )
    found = {(f.where.split(": ")[0], f.rule) for f in check(folder, sample=1).findings}
    assert found == {(clock, "random") for clock in CLOCKS}


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
    assert ended.stderr == ""
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


def test_the_command_says_what_it_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_env.cli.check.EVERY_S", 0.0)
    change = ('        self.said = ""', "        import threading; threading.Event().wait()")
    ended = CliRunner().invoke(main, ["check", str(written(tmp_path, change)), "--timeout", "3"])
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[-1] == "0 of 4 tasks played, now at train/0: reset"
    assert "not over after 3 s, and was at reset" in ended.stdout
    refused = CliRunner().invoke(main, ["check", "gridsim", "--timeout", "nan"])
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_the_check_plays_as_the_server_does() -> None:
    assert QUICK_S == SLOW_S
    assert seed_of("gridsim/train/7") == derived_seed("gridsim/train/7")


def test_no_bundle_at_all_is_a_mistake_in_the_command() -> None:
    with pytest.raises(BundleNotFound):
        check("no-such-bundle")
    assert CliRunner().invoke(main, ["check", "no-such-bundle"]).exit_code == 2
