"""iterative/terraform-provider-iterative#697: fetching results overwrites what was changed here.

There: a person edits a fetched file, or has one of that name, and the next fetch replaces it.
Here: a real box's sync, then three pulls. A file that was edited here is set aside under a name of
its own before the bucket's version gets its place; one that a pull never brought stays as it is;
and each run has a folder of its own, so that runs never meet.
"""

from __future__ import annotations

from tests.incidents.scene import Scene

NAME = "out/checkpoint-3/adapter"


def test_a_pull_never_costs_a_person_their_bytes(scene: Scene) -> None:
    scene.begin().drive()
    scene.pull()
    theirs = scene.pulled("train", NAME)
    folder = scene.world.folder / "pulled" / scene.run_id / "train"
    mine, notes = folder / NAME, folder / "out" / "notes.txt"
    mine.write_bytes(b"edited here")
    notes.write_bytes(b"written here")
    report = scene.pull()
    assert scene.pulled("train", NAME) == theirs
    assert mine.with_name("adapter.local-1").read_bytes() == b"edited here"
    assert report.jobs["train"].kept == (f"{NAME} as adapter.local-1",)
    mine.write_bytes(b"edited again")
    scene.pull()
    kept = {path.read_bytes() for path in mine.parent.glob("adapter*")}
    assert kept == {theirs, b"edited here", b"edited again"}
    assert notes.read_bytes() == b"written here"


def test_a_file_of_that_name_that_no_pull_brought_is_kept_too(scene: Scene) -> None:
    scene.begin().drive()
    folder = scene.world.folder / "pulled" / scene.run_id / "train" / "out"
    folder.mkdir(parents=True)
    (folder / "model").write_bytes(b"my own")
    report = scene.pull()
    assert scene.pulled("train", "out/model") == b"model 6"
    assert (folder / "model.local-1").read_bytes() == b"my own"
    assert report.jobs["train"].kept == ("out/model as model.local-1",)
