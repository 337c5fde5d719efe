"""A pull says what of the results never left its box, and whether more may come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import ResultsMissing, ResultsPartial
from orchestrator.results import PullReport, State, pull

from .results_test import FILES, RUN, Objects

SECRET = "out/checkpoint-5 (whole checkpoint: out/checkpoint-5/a (holds WANDB_API_KEY))"
LINK = "out/latest: a link, not kept"


def pulled(tmp_path: Path, **said: list[str]) -> PullReport:
    bucket = Objects()
    bucket.commit("leak", FILES)
    key = f"runs/{RUN}/jobs/leak/COMPLETE"
    bucket.held[key] = json.dumps(json.loads(bucket.held[key]) | said).encode()
    return pull(bucket, RUN, tmp_path, ["leak"])


def test_a_result_that_was_withheld_is_named_and_the_exit_code_says_partial(
    tmp_path: Path,
) -> None:
    report = pulled(tmp_path, withheld=[SECRET], left_out=[LINK])
    assert report.state is State.COMPLETE
    assert report.words().endswith(f", but left out: leak/{SECRET}, leak/{LINK}")
    with pytest.raises(ResultsPartial, match="holds WANDB_API_KEY") as told:
        report.raise_unless_complete()
    assert "Pull again" not in told.value.hint
    with pytest.raises(ResultsPartial):
        report.raise_if_withheld()


def test_a_link_that_was_left_out_is_named_and_nothing_is_wrong(tmp_path: Path) -> None:
    report = pulled(tmp_path, left_out=[LINK], withheld=[])
    assert report.words().endswith(f", but left out: leak/{LINK}")
    report.raise_unless_complete()
    report.raise_if_withheld()


def test_of_many_that_were_left_out_the_first_few_are_named(tmp_path: Path) -> None:
    report = pulled(tmp_path, left_out=[f"out/{n}: a link, not kept" for n in range(9)])
    assert report.words().endswith("leak/out/4: a link, not kept, 4 more")


def test_a_complete_that_says_nothing_of_it_has_left_nothing_out(tmp_path: Path) -> None:
    assert "left out" not in pulled(tmp_path).words()


@pytest.mark.parametrize(
    ("state", "reason", "over"),
    [
        ("failed", "exit status 3", True),
        ("cut", "told to stop", True),
        ("cut", "spot notice", False),
        ("running", "", False),
    ],
)
def test_nobody_is_asked_to_pull_again_what_is_over(
    tmp_path: Path, state: str, reason: str, over: bool
) -> None:
    bucket = Objects()
    bucket.commit("done", FILES)
    bucket.commit("train", FILES, ended=None)
    said = {"state": state, "reason": reason}
    bucket.held[f"runs/{RUN}/jobs/train/status.json"] = json.dumps(said).encode()
    report = pull(bucket, RUN, tmp_path, ["done", "train"])
    assert report.over is over
    with pytest.raises(ResultsPartial) as told:
        report.raise_unless_complete()
    why = f"The run is over; this is all there is. Why: gpurun logs {RUN} train"
    assert told.value.hint == (why if over else f"Pull again: gpurun pull {RUN}")
    assert report.words() not in told.value.message


def test_of_a_run_that_is_over_and_left_nothing_the_consoles_say_why(tmp_path: Path) -> None:
    bucket = Objects()
    bucket.held[f"runs/{RUN}/jobs/a/status.json"] = b'{"state": "blocked"}'
    with pytest.raises(ResultsMissing) as told:
        pull(bucket, RUN, tmp_path, ["a"]).raise_unless_complete()
    assert told.value.hint.endswith(f"Why: gpurun logs {RUN}")
