"""The stories are frozen, and each mailbox is one that could exist."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agent_env.bundle import load_bundle
from agent_env.bundles.inbox import bundle
from agent_env.bundles.inbox.frozen import SPLITS, lines
from agent_env.bundles.inbox.generate import story, write

from .players import ALL, story_of

CONTENT_HASH = "cc0d05efc56bc0ea9d3bacde39d63093bcf98d02eb074ee56726148aa7f2303b"
"""Changes only together with the stories, prompts or tools: results before and after such a
change can't be compared, so say it in the changelog."""

KINDS = {"invoice", "order", "meeting", "newsletter", "choice"}


def test_the_content_is_the_frozen_one_in_every_process() -> None:
    assert bundle.content_hash == CONTENT_HASH
    code = "from agent_env.bundles.inbox import bundle; print(bundle.content_hash)"
    for seed in ("0", "1"):
        told = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.strip() == CONTENT_HASH


def test_the_hash_follows_the_tools_and_the_words_of_the_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_env.bundles.inbox.inbox.SYSTEM_PROMPT", "another")
    assert bundle.content_hash != CONTENT_HASH


def test_the_generator_makes_the_frozen_stories_again(tmp_path: Path) -> None:
    for split, count in SPLITS.items():
        made = [story(split, index).model_dump_json().encode() for index in range(count)]
        assert tuple(made) == lines(split)
    for name in ("one", "two"):
        write(tmp_path / name, {"eval": 3})
    packed = (tmp_path / "one" / "eval.jsonl.gz").read_bytes()
    assert packed == (tmp_path / "two" / "eval.jsonl.gz").read_bytes()
    assert packed[4:8] == bytes(4), "gzip's own time"
    assert len(gzip.decompress(packed).splitlines()) == 3


def test_the_splits_have_their_sizes_and_every_kind_equally_often() -> None:
    assert {split: len(bundle.tasks(split)) for split in bundle.splits} == SPLITS
    assert SPLITS["train"] >= 300
    assert SPLITS["eval"] >= 100
    for split, count in SPLITS.items():
        kinds = Counter(task.data["kind"] for task in bundle.tasks(split))
        assert kinds == dict.fromkeys(KINDS, count // len(KINDS))
    with pytest.raises(KeyError, match="test"):
        bundle.tasks("test")


def test_no_mailbox_comes_twice_and_tasks_know_their_place() -> None:
    assert len({line for split in SPLITS for line in lines(split)}) == len(ALL)
    for split in bundle.splits:
        for index, task in enumerate(bundle.tasks(split)):
            assert (task.split, task.index, task.id) == (split, index, f"inbox/{split}/{index}")


def test_ids_follow_the_dates_and_no_two_mails_share_one() -> None:
    for task in ALL:
        mails = story_of(task).mails
        assert [mail.id for mail in mails] == [f"m{n}" for n in range(1, len(mails) + 1)]
        dates = [mail.date for mail in mails]
        assert dates == sorted(set(dates))
        assert 10 <= len(mails) <= 20


def test_a_reply_comes_after_the_mail_that_began_its_thread() -> None:
    for task in ALL:
        mails = {mail.id: mail for mail in story_of(task).mails}
        for mail in mails.values():
            first = mails[mail.thread]
            if mail is not first:
                assert first.date < mail.date
                assert mail.subject == f"Re: {first.subject}"


def test_a_name_has_one_address_and_an_address_one_name() -> None:
    for task in ALL:
        people = {(mail.sender, mail.address) for mail in story_of(task).mails}
        assert len({name for name, _ in people}) == len({box for _, box in people}) == len(people)


def test_whoever_is_to_get_mail_and_whatever_is_to_be_found_is_in_the_mailbox() -> None:
    for task in ALL:
        asked = story_of(task)
        box = asked.mailbox()
        for goal in (*asked.first, *asked.second):
            assert not goal.to or box.address(goal.described) == goal.to
            assert not goal.message or box.read(goal.message)
        assert set(asked.reads) <= {message.id for message in box.search(asked.query)}


def test_the_answer_and_its_rivals_stand_in_the_mail() -> None:
    for task in ALL:
        asked = story_of(task)
        if asked.kind == "newsletter":
            continue  # its answer is a count
        asked = asked.chosen(asked.options[0]) if asked.options else asked
        text = "\n".join(mail.body for mail in asked.mails)
        words = [word.partition("|")[0] for word in (*asked.answer.says, *asked.answer.never)]
        assert all(word in text for word in words)
        assert not set(asked.answer.says) & set(asked.answer.never)


def test_every_task_has_a_near_duplicate_that_tempts() -> None:
    for task in ALL:
        asked = story_of(task)
        mails = {mail.id: mail for mail in asked.mails}
        assert asked.rivals
        for right, wrong in asked.rivals.items():
            assert mails[right].body != mails[wrong].body


def test_prompts_fit_a_small_model_and_give_away_no_answer() -> None:
    for task in ALL:
        asked = story_of(task)
        assert len(task.prompt) < 300
        assert not asked.answer.told(task.prompt)


def test_the_bundle_is_found_by_name() -> None:
    assert load_bundle("inbox") is bundle
    assert load_bundle("agent_env.bundles.inbox:bundle") is bundle
