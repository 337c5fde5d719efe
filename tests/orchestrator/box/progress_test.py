"""Following a metrics file that another process is writing."""

from __future__ import annotations

import json
import os
from pathlib import Path

from orchestrator.box.progress import Progress


def say(path: Path, *lines: object) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_progress_follows_the_newest_line_and_keeps_the_final_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    progress = Progress(path)
    progress.read()
    assert (progress.step, progress.metrics) == (None, {})
    say(path, {"t": 1, "step": 3, "max_steps": 9, "kind": "train", "reward": 0.5})
    progress.read()
    assert (progress.step, progress.max_steps, progress.metrics) == (3, 9, {"reward": 0.5})
    say(path, {"kind": "final", "step": 9, "rise": 0.2}, {"kind": "train", "reward": 0.1})
    progress.read()
    assert (progress.step, progress.metrics) == (9, {"rise": 0.2})


def test_an_unscored_reward_stays_none_and_what_is_no_plain_value_is_left_out(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"reward": null, "loss": NaN, "note": [1], "n": 2, "word": "x", "e": 1'
        + "0" * 400
        + "}\n"
    )
    progress = Progress(path)
    progress.read()
    assert progress.metrics == {"reward": None, "n": 2, "word": "x"}


def test_half_a_character_in_a_name_or_a_word_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(r'{"\ud800": 1, "word": "a\udfffb", "smile": "\ud83d\ude00"}' + "\n")
    progress = Progress(path)
    progress.read()
    assert progress.metrics == {"smile": "😀"}


def test_a_file_that_was_cut_back_to_a_checkpoint_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    progress = Progress(path)
    say(
        path, *({"step": step, "kind": "train"} for step in range(1, 9)), {"kind": "final", "x": 1}
    )
    progress.read()
    (tmp_path / "fresh").write_text('{"step": 1}\n{"step": 2, "reward": 0.5}\n')
    (tmp_path / "fresh").replace(path)
    progress.read()
    assert (progress.step, progress.metrics) == (2, {"reward": 0.5})


def test_half_a_line_waits_and_a_broken_one_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"ste')
    progress = Progress(path)
    progress.read()
    assert progress.step == 1
    progress.mend()
    say(path, {"step": 2})
    progress.read()
    assert progress.step == 2
    assert path.read_text() == '{"step": 1}\n{"ste\n{"step": 2}\n'
    progress.mend()
    assert path.read_text().endswith('{"step": 2}\n')


def test_a_line_too_deep_to_parse_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("[" * 100_000 + '\n{"step": 2}\n')
    progress = Progress(path)
    progress.read()
    assert progress.step == 2


def test_a_pipe_in_the_place_of_the_metrics_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    os.mkfifo(path)
    progress = Progress(path)
    progress.read()
    progress.mend()
    assert progress.step is None
