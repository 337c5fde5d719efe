"""Takes in what a box sends of its results over SSH, when S3 is what is broken.

A file gets its name once it hashes to what the box says; a stream that is cut costs nothing that
had arrived whole before.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath
from typing import IO

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.box.rescue import END, RECORD
from orchestrator.errors import GpurunError, ResultsMissing, ResultsPartial
from orchestrator.results import writing_into

PARTS, MANIFEST = ".parts", "manifest.json"
_BLOCK = 1 << 20
_ROOT = "${GPURUN_ROOT:-/opt/gpurun}"


class RescuedFile(BaseModel):
    """One file as it is here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sha256: str
    size: int
    mode: int


class _Record(BaseModel):
    """Files of one job that count together, as the box says."""

    job: str
    files: dict[str, RescuedFile]


class _End(BaseModel):
    """The last that the box says."""

    left_out: dict[str, tuple[str, ...]]


class Rescued(BaseModel):
    """What of a box's results is on this machine, and what isn't."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    box: str
    folder: Path
    files: dict[str, RescuedFile]
    """Verified, by their path below the folder."""
    problems: tuple[str, ...] = ()
    """What arrived and isn't what the box says; it's not here."""
    left_out: dict[str, tuple[str, ...]] = {}
    """What the box didn't send, by job, in words."""
    cut: str = ""
    """Why the stream ended before its end."""

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files.values())

    def words(self) -> str:
        """For people: what was verified first, then what wasn't."""
        jobs = {name.partition("/")[0] for name in self.files}
        said = [
            f"verified {len(self.files)} files of {len(jobs)} jobs, {self.bytes / 1e6:.1f} MB, "
            f"by their SHA-256 in {self.folder}"
        ]
        said += [f"not here: {problem}" for problem in self.problems]
        said += [f"left out: {job}: {note}" for job, of in self.left_out.items() for note in of]
        return "\n".join(said)

    def raise_unless_complete(self) -> None:
        """Raises ResultsMissing or ResultsPartial."""
        again = f"Again: gpurun rescue {self.run_id} {self.box}"
        if self.cut or self.problems:
            why = self.cut or "; ".join(self.problems)
            raise ResultsPartial(f"Not all of {self.box} arrived: {why}", hint=again)
        if not self.files:
            raise ResultsMissing(f"No job on {self.box} has made anything.", hint=again)


@dataclass(frozen=True)
class _Arrived:
    part: Path
    sha256: str
    size: int


def command_for(box: str) -> str:
    """What to run on a box. Its files are root's; a box of plain processes has no other user."""
    read = f'-m orchestrator.box.rescue --root "$root" --box {box}'
    return (
        f'root="{_ROOT}"; as=; [ -n "${{GPURUN_POWEROFF-}}" ] || ! sudo -n true 2>/dev/null || '
        f'as="sudo -n"; exec $as env PYTHONPATH="$root/agent" python3 {read}'
    )


def receive(stream: IO[bytes], run_id: str, box: str, to: Path) -> Rescued:
    """Read what `box` sends into `<to>/<run_id>/rescued/<box>/<job>/…`.

    Raises FolderError; whatever ends the stream is told in what is returned.
    """
    folder = to / run_id / "rescued" / box
    with writing_into(folder, f"gpurun rescue {run_id} {box}"):
        shutil.rmtree(folder / PARTS, ignore_errors=True)
        (folder / PARTS).mkdir(parents=True)
        taking = _Taking(folder)
        try:
            taking.all_of(stream)
        except ValidationError as error:
            faults = "; ".join(f"{fault['loc']}: {fault['msg']}" for fault in error.errors())
            taking.cut = f"it said what no box says ({faults})"
        except (tarfile.TarError, EOFError, ValueError, GpurunError) as error:
            taking.cut = str(error) or type(error).__name__
        shutil.rmtree(folder / PARTS, ignore_errors=True)
        found = Rescued(
            run_id=run_id,
            box=box,
            folder=folder,
            files=taking.files,
            problems=tuple(taking.problems),
            left_out=taking.left_out,
            cut=taking.cut,
        )
        (folder / MANIFEST).write_text(found.model_dump_json(indent=1, exclude={"folder"}))
    return found


class _Taking:
    """One stream on its way onto the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._arrived = folder, dict[str, _Arrived]()
        self._numbers = count()
        self.files: dict[str, RescuedFile] = {}
        self.problems: list[str] = []
        self.left_out: dict[str, tuple[str, ...]] = {}
        self.cut = "the box didn't say that this was all"

    def all_of(self, stream: IO[bytes]) -> None:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise ValueError(f"{member.name!r} is no regular file")
                if member.name == END:
                    self._end(_End.model_validate_json(content.read()))
                    return
                if member.name == RECORD:
                    self._record(_Record.model_validate_json(content.read()))
                else:
                    self._file(_inside(member.name), content)

    def _file(self, name: str, content: IO[bytes]) -> None:
        """Its bytes wait under a number of their own: what changed on the box comes twice."""
        part = self._folder / PARTS / str(next(self._numbers))
        digest, size = hashlib.sha256(), 0
        with part.open("wb") as out:
            while block := content.read(_BLOCK):
                digest.update(block)
                size += len(block)
                out.write(block)
        if before := self._arrived.get(name):
            before.part.unlink()
        self._arrived[name] = _Arrived(part, digest.hexdigest(), size)

    def _record(self, said: _Record) -> None:
        """Files that count together: each gets its name only if all are right.

        What came since the last record and isn't named was given up on the box.
        """
        named = {_inside(f"{said.job}/{name}"): file for name, file in said.files.items()}
        wrong = [name for name, file in named.items() if not self._is_right(name, file)]
        self.problems += [f"{name}: its bytes hash to something else" for name in wrong]
        if not wrong:
            for name, file in named.items():
                self._name(self._arrived[name].part, name, file.mode)
            self.files |= named
        for arrived in self._arrived.values():
            arrived.part.unlink(missing_ok=True)
        self._arrived.clear()

    def _name(self, part: Path, name: str, mode: int) -> None:
        target = self._target(name)
        part.chmod((mode & 0o777) | 0o600)
        part.replace(target)

    def _is_right(self, name: str, file: RescuedFile) -> bool:
        arrived = self._arrived.get(name)
        return arrived is not None and (arrived.sha256, arrived.size) == (file.sha256, file.size)

    def _target(self, name: str) -> Path:
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        within = target.parent.resolve().is_relative_to(self._folder.resolve())
        if not within or target.is_dir():
            raise ValueError(f"{name} leads out of {self._folder}, or is a folder there")
        return target

    def _end(self, said: _End) -> None:
        self.left_out = {job: notes for job, notes in said.left_out.items() if notes}
        self.cut = ""


def _inside(name: str) -> str:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or len(pure.parts) < 2 or "\0" in name:
        raise ValueError(f"{name!r} leads out of its job's folder")
    return str(pure)
