"""What a box sends when its results are fetched over SSH, and what arrives of it."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from orchestrator.box import rescue as box_rescue
from orchestrator.box import scan, spec
from orchestrator.box.rescue import send
from orchestrator.errors import FolderError, RemoteError, ResultsMissing, ResultsPartial
from orchestrator.rescue import receive

from .rig import BOX, RUN, box_spec

JOB = {"needs": [], "inputs": {}, "results": ["out"], "retries": 1}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The disk of a box with one job, called train, that has made some files."""
    root = tmp_path / "box"
    out = root / "jobs" / "train" / "work" / "out"
    (out / "checkpoint-5").mkdir(parents=True)
    (out / "checkpoint-5" / "model.bin").write_bytes(b"w" * 3_000_000)
    (out / "checkpoint-5" / "trainer_state.json").write_text('{"step": 5}')
    (out / "empty").touch()
    (out / "ünïcode").write_text("x")
    (out / "secret-mode").write_text("y")
    (out / "secret-mode").chmod(0o600)
    (out / "link").symlink_to("/etc/hostname")
    (out.parent.parent / "log.txt").write_text("step 5\n")
    (out.parent / "not-a-result").write_text("z")
    (root / "boxes").mkdir()
    text = json.dumps(box_spec(jobs=[JOB | {"name": "train"}, JOB | {"name": "never"}]))
    (root / "boxes" / f"{BOX}.json").write_text(text)
    return root


def sent(root: Path) -> bytes:
    out = io.BytesIO()
    send(spec.read_spec(root / "boxes" / f"{BOX}.json"), root, out)
    return out.getvalue()


def test_everything_that_a_job_made_arrives_under_its_name_with_its_bytes(
    root: Path, tmp_path: Path
) -> None:
    found = receive(io.BytesIO(sent(root)), RUN, BOX, tmp_path / "to")
    found.raise_unless_complete()
    home = tmp_path / "to" / RUN / "rescued" / BOX / "train"
    assert found.folder / "train" == home
    assert {name.removeprefix("train/") for name in found.files} == {
        "log.txt",
        "out/checkpoint-5/model.bin",
        "out/checkpoint-5/trainer_state.json",
        "out/empty",
        "out/ünïcode",
        "out/secret-mode",
    }
    for name, file in found.files.items():
        data = (found.folder / name).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (file.sha256, file.size)
    assert (home / "out" / "secret-mode").stat().st_mode & 0o777 == 0o600
    assert found.left_out == {"train": ("out/link: a link, not kept",)}
    assert "verified 6 files of 1 jobs" in found.words()
    assert json.loads((found.folder / "manifest.json").read_text())["files"].keys() == (
        found.files.keys()
    )


def test_what_arrived_before_a_cut_is_kept_and_verified(root: Path, tmp_path: Path) -> None:
    class Lost(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            if not data:
                raise RemoteError("The box was lost")
            return data

    whole = sent(root)
    found = receive(Lost(whole[: len(whole) // 2]), RUN, BOX, tmp_path)
    assert (found.folder / "train" / "log.txt").read_text() == "step 5\n"
    assert "train/out/checkpoint-5/model.bin" not in found.files
    assert not list(found.folder.rglob("model.bin"))
    assert not (found.folder / ".parts").exists()
    with pytest.raises(ResultsPartial, match="lost"):
        found.raise_unless_complete()
    again = receive(io.BytesIO(whole), RUN, BOX, tmp_path)
    again.raise_unless_complete()


@pytest.mark.parametrize("keep", [0, 1, 512, 1024, 5000])
def test_a_stream_without_its_end_is_never_called_complete(
    root: Path, tmp_path: Path, keep: int
) -> None:
    found = receive(io.BytesIO(sent(root)[:keep]), RUN, BOX, tmp_path)
    with pytest.raises(ResultsPartial):
        found.raise_unless_complete()


def test_a_byte_that_changed_on_the_way_is_told_and_doesnt_become_a_result(
    root: Path, tmp_path: Path
) -> None:
    whole = sent(root)
    at = whole.index(b"w" * 1000) + 500
    found = receive(io.BytesIO(whole[:at] + b"x" + whole[at + 1 :]), RUN, BOX, tmp_path)
    assert found.problems == (
        "train/out/checkpoint-5/model.bin: its bytes hash to something else",
    )
    assert not list(found.folder.rglob("model.bin"))
    assert not list(found.folder.rglob("trainer_state.json")), "a checkpoint comes whole or not"
    assert (found.folder / "train" / "out" / "ünïcode").exists()
    with pytest.raises(ResultsPartial):
        found.raise_unless_complete()


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return io.BytesIO(out.getvalue())


def record(job: str, name: str, data: bytes) -> tuple[tarfile.TarInfo, bytes]:
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "mode": 0o644}
    said: dict[str, Any] = {"job": job, "files": {name: entry}}
    return tarfile.TarInfo("record.json"), json.dumps(said).encode()


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "evil", "a/../../../x/evil"])
def test_a_name_that_leads_out_of_its_folder_writes_nothing(tmp_path: Path, name: str) -> None:
    job, _, rest = name.partition("/")
    stream = archive((tarfile.TarInfo(name), b"x"), record(job, rest, b"x"))
    found = receive(stream, RUN, BOX, tmp_path / "to")
    assert found.files == {}
    assert not list(tmp_path.rglob("evil"))
    with pytest.raises(ResultsPartial):
        found.raise_unless_complete()


def test_a_link_in_the_stream_or_in_the_folder_isnt_followed(tmp_path: Path) -> None:
    link = tarfile.TarInfo("train/out")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
    assert receive(archive((link, b"")), RUN, BOX, tmp_path / "a").files == {}
    here = tmp_path / "b" / RUN / "rescued" / BOX
    here.mkdir(parents=True)
    (here / "train").symlink_to(tmp_path)
    stream = archive((tarfile.TarInfo("train/evil"), b"x"), record("train", "evil", b"x"))
    assert receive(stream, RUN, BOX, tmp_path / "b").files == {}
    assert not (tmp_path / "evil").exists()


def test_a_box_that_has_made_nothing_yet_says_so(tmp_path: Path) -> None:
    root = tmp_path / "box"
    (root / "boxes").mkdir(parents=True)
    text = json.dumps(box_spec(jobs=[JOB | {"name": "train"}]))
    (root / "boxes" / f"{BOX}.json").write_text(text)
    found = receive(io.BytesIO(sent(root)), RUN, BOX, tmp_path / "to")
    with pytest.raises(ResultsMissing):
        found.raise_unless_complete()


def test_a_file_that_changes_while_it_is_read_is_sent_again_or_told(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "jobs" / "train" / "work" / "out" / "ünïcode"
    stock, changes = scan.again, [b"xx", b""]

    def changing(found: scan.Found) -> scan.Found | None:
        if found.path == path and changes:
            path.write_bytes(changes.pop())
        return stock(found)

    monkeypatch.setattr(box_rescue, "again", changing)
    found = receive(io.BytesIO(sent(root)), RUN, BOX, tmp_path / "to")
    found.raise_unless_complete()
    assert (found.folder / "train" / "out" / "ünïcode").read_bytes() == path.read_bytes() == b"xx"


def test_a_checkpoint_that_is_sent_again_keeps_each_of_its_files_bytes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "jobs" / "train" / "work" / "out" / "checkpoint-5" / "trainer_state.json"
    stock, changes = scan.again, [b'{"step": 6}']

    def changing(found: scan.Found) -> scan.Found | None:
        if found.path == path and changes:
            path.write_bytes(changes.pop())
        return stock(found)

    monkeypatch.setattr(box_rescue, "again", changing)
    found = receive(io.BytesIO(sent(root)), RUN, BOX, tmp_path / "to")
    found.raise_unless_complete()
    home = found.folder / "train" / "out" / "checkpoint-5"
    assert (home / "model.bin").read_bytes() == b"w" * 3_000_000
    assert (home / "trainer_state.json").read_bytes() == b'{"step": 6}'
    assert {"train/log.txt", "train/out/ünïcode"} <= found.files.keys()


def member(name: str, data: bytes) -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), data


def test_what_the_box_gave_up_on_never_becomes_a_result(tmp_path: Path) -> None:
    stream = archive(
        *(member(name, name.encode()) for name in ("t/a", "t/b", "t/a")),
        record("t", "a", b"t/a"),
        record("t", "b", b"t/b"),
        member("end.json", b'{"left_out": {}}'),
    )
    found = receive(stream, RUN, BOX, tmp_path)
    assert found.files.keys() == {"t/a"}
    assert (found.folder / "t" / "a").read_bytes() == b"t/a"
    assert found.problems == ("t/b: its bytes hash to something else",)


@pytest.mark.parametrize(
    "said",
    [
        *(("record.json", text) for text in (b"", b"[]", b"{}", b'{"job": 1, "files": {}}')),
        *(("record.json", b'{"job": "t", "files": %s}' % of) for of in (b"[]", b'{"a": 1}')),
        *(("end.json", text) for text in (b"null", b"{}", b'{"left_out": {"t": 1}}')),
        *(("end.json", text) for text in (b'{"left_out": []}', b"[" * 5000)),
    ],
)
def test_what_no_box_says_ends_the_stream_and_costs_nothing_that_had_arrived(
    tmp_path: Path, said: tuple[str, bytes]
) -> None:
    stream = archive(member("t/a", b"x"), record("t", "a", b"x"), member(*said))
    found = receive(stream, RUN, BOX, tmp_path)
    assert (found.folder / "t" / "a").read_bytes() == b"x"
    with pytest.raises(ResultsPartial, match="no box says"):
        found.raise_unless_complete()


def test_a_folder_that_cant_take_them_is_named_with_the_command_that_brings_them_elsewhere(
    tmp_path: Path,
) -> None:
    (tmp_path / RUN).write_text("in the way")
    with pytest.raises(FolderError, match="can't be written") as told:
        receive(archive(), RUN, BOX, tmp_path)
    assert f"gpurun rescue {RUN} {BOX} --to DIR" in told.value.hint


def test_the_program_on_the_box_needs_nothing_but_python(root: Path, tmp_path: Path) -> None:
    packages = str(Path(scan.__file__).parents[2])
    code = (
        f"import sys; sys.path.insert(0, {packages!r}); sys.argv[1:] = "
        f"['--root', {str(root)!r}, '--box', {BOX!r}]\n"
        "from orchestrator.box.rescue import main\ncode = main()\n"
        "assert 'boto3' not in sys.modules, 'boto3'\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=True,
    )
    receive(io.BytesIO(done.stdout), RUN, BOX, tmp_path / "to").raise_unless_complete()
