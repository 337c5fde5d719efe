"""YAML as plain data that still knows where each field stands.

Stricter than a YAML loader, because a runbook spends money: a key given twice, a tag, an
anchor or a second document is a fault, and scalars follow YAML 1.2's core schema (`no` is
text, `1:30` is text, `7e-4` is a number).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import cast

import yaml

from orchestrator.faults import Fault, Path, did_you_mean, runbook_error

MAX_BYTES = 1_000_000
MAX_DEPTH = 32

_INT = re.compile(r"[-+]?[0-9]{1,30}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?", re.ASCII)
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass
class Document:
    """Parsed data, and the (line, column) of every field; both count from 1."""

    data: object = None
    places: dict[Path, tuple[int, int]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def place(self, path: Path) -> tuple[int, int]:
        """Where a field stands, or the nearest field around it that is in the file."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, (1, 1))

    def located(self, fault: Fault) -> Fault:
        return fault if fault.line else fault.at(*self.place(fault.path))


def read_document(path: FilePath) -> Document:
    """The YAML file at `path`.

    Raises RunbookError when it can't be read or is no YAML; what is wrong inside a readable
    file is listed in `faults`.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, f"can't be read: {error.strerror}", _looked_in(path)) from None
    if len(raw) > MAX_BYTES:
        raise _unreadable(path, f"has {len(raw):,} bytes", "A runbook is a short YAML text.")
    try:
        return parse_document(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise _unreadable(path, "isn't UTF-8 text", "A runbook is a YAML text.") from None
    except yaml.YAMLError as error:
        raise runbook_error(str(path), [_not_yaml(error)]) from None


def parse_document(text: str) -> Document:
    """Like `read_document`, for text in hand. Raises yaml.YAMLError."""
    builder = _Builder(yaml.parse(text, Loader=yaml.SafeLoader))
    return builder.build()


def _looked_in(path: FilePath) -> str:
    """The folder where a runbook should have been, and those that are in it."""
    here = path.absolute()
    try:
        folder = here if here.is_dir() else here.parent
        if not folder.is_dir():
            return f"There is no folder {folder}."
        for place in (folder, folder / "runbooks"):
            if names := sorted(file.name for file in place.glob("*.y*ml") if file.is_file()):
                return did_you_mean(path.name, names, listed=f"In {place} are")
    except OSError:  # no path can be so long, or a folder on the way isn't for this user
        return "Check the path."
    return f"No .yaml file is in {folder}."


def _unreadable(path: FilePath, problem: str, fix: str) -> Exception:
    return runbook_error(str(path), [Fault((), problem, fix)])


def _not_yaml(error: yaml.YAMLError) -> Fault:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    fault = Fault((), f"not YAML: {what}", "See docs/runbooks.md for the shape of a runbook.")
    return fault.at(mark.line + 1, mark.column + 1) if mark else fault


class _Builder:
    """Builds data from the parser's events, which still tell tags, anchors and twins apart."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._document = Document()

    def build(self) -> Document:
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fault((), event, "a second document", "Keep one runbook to a file.")
            elif isinstance(event, yaml.NodeEvent):
                value = self._node(event, ())
                self._document.data = value if documents == 1 else self._document.data
        return self._document

    def _node(self, event: yaml.Event, path: Path) -> object:
        self._document.places.setdefault(path, _place(event))
        if isinstance(event, yaml.ScalarEvent):
            self._check_plain(event, path)
            return event.value if event.style else _scalar(event.value)
        if isinstance(event, yaml.CollectionStartEvent):
            self._check_plain(event, path)
            return self._collection(event, path)
        name = event.anchor if isinstance(event, yaml.AliasEvent) else ""
        self._fault(path, event, f"an alias, *{name}", "Write the value out.")
        return None

    def _collection(self, event: yaml.CollectionStartEvent, path: Path) -> object:
        if len(path) >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=_mark(event))
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return self._mapping(path)

    def _check_plain(
        self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, path: Path
    ) -> None:
        if event.tag is not None:
            self._fault(path, event, f"a tag, {event.tag}", "Take it out: a runbook is data.")
        if event.anchor is not None:
            self._fault(path, event, f"an anchor, &{event.anchor}", "Take it out.")

    def _sequence(self, path: Path) -> list[object]:
        items: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, len(items))))
        return items

    def _mapping(self, path: Path) -> dict[str, object]:
        fields: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, path)
            if key in fields:
                self._twin(key, event, path)
            self._document.places.setdefault((*path, key), _place(event))
            fields[key] = self._node(next(self._events), (*path, key))
        return fields

    def _key(self, event: yaml.Event, path: Path) -> str:
        if isinstance(event, yaml.ScalarEvent):
            self._check_plain(event, path)
            return str(event.value)
        raise yaml.MarkedYAMLError(problem="a key must be text", problem_mark=_mark(event))

    def _twin(self, key: str, event: yaml.Event, path: Path) -> None:
        first = self._document.places[(*path, key)][0]
        problem = f"{key!r} is here twice; the first is in line {first}"
        self._fault((*path, key), event, problem, "Rename one or take it out.")

    def _fault(self, path: Path, event: yaml.Event, problem: str, fix: str) -> None:
        self._document.faults.append(Fault(path, problem, fix).at(*_place(event)))


def _mark(event: yaml.Event) -> yaml.Mark:
    return cast("yaml.Mark", event.start_mark)


def _place(event: yaml.Event) -> tuple[int, int]:
    return _mark(event).line + 1, _mark(event).column + 1


def _scalar(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL_FLOAT.fullmatch(text):
        return float(text.replace(".", ""))
    return text
