"""Keeps the values of secrets out of what leaves the box as text, and finds them in files.

A secret is looked for as it is, and as JSON, a URL or base64 would write it. What may be the
beginning of one at the end of a file that still grows is held back until more of it is there.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, quote_plus

from orchestrator.box.regular import open_regular

SHORTEST = 8
"""Characters; a shorter value would turn up in texts that have nothing to do with it."""
BLOCK = 1 << 20
# Beyond it only the value itself is looked for: weights are long, and each form is a pass.
ALL_FORMS_BYTES = 64 << 20
_SHOWN = 5


class Withheld(Exception):
    """A file holds a secret, or is named by one, and so isn't uploaded."""


@dataclass(frozen=True)
class _Form:
    """One way in which a variable's value may be written."""

    data: bytes
    name: str
    plain: bool

    @property
    def mark(self) -> bytes:
        return f"***{self.name}***".encode()


class Redactor:
    """Knows nothing until it has learned the values, and lets everything through till then."""

    def __init__(self) -> None:
        self._forms: tuple[_Form, ...] = ()
        self._by_data: dict[bytes, _Form] = {}
        self._any = re.compile(b"(?!)")
        self._longest = 0

    @property
    def active(self) -> bool:
        return bool(self._forms)

    def learn(self, values: Mapping[str, str]) -> None:
        """Look for these from now on, as well as for those learned before."""
        found = {form.data: form for name in values for form in _forms(name, values[name])}
        self._by_data = found | self._by_data
        self._forms = tuple(sorted(self._by_data.values(), key=lambda form: -len(form.data)))
        if self._forms:
            self._any = re.compile(b"|".join(re.escape(form.data) for form in self._forms))
            self._longest = len(self._forms[0].data)

    def text(self, text: str) -> str:
        """The text with a mark in place of each value."""
        if not self._forms:
            return text
        return self.clean(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def value(self, value: Any) -> Any:
        """The same of everything in a value as JSON has them, the names of fields included."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def clean(self, data: bytes, *, begins: bool = True) -> bytes:
        """`data` without the values; `begins`: not cut off at its start, where half of one is."""
        if not self._forms:
            return data
        if not begins:
            data = data[self._underhang(data) :]
        return b"".join(self._cleaned([data], ends=True))

    def name_in(self, data: bytes, *, all_forms: bool = True) -> str | None:
        """The variable whose value is in there."""
        forms = (form for form in self._forms if all_forms or form.plain)
        return next((form.name for form in forms if form.data in data), None)

    def publish(self, path: Path, size: int, copy: Path, *, ends: bool) -> tuple[Path, int]:
        """Path and size of what may be uploaded of the first `size` bytes of a text.

        It's the text itself, or where a value is in it a redacted `copy`. Unless the text `ends`,
        what may be the beginning of a value is left off. Raises OSError.
        """
        found, clear = self._search(path, size)
        if found is None and (not ends or size - clear < SHORTEST):
            return path, size if ends else clear
        part = copy.with_name(copy.name + ".part")
        with open_regular(path) as source, part.open("wb") as target:
            for piece in self._cleaned(_blocks(source, size), ends=ends):
                target.write(piece)
        part.replace(copy)
        return copy, copy.stat().st_size

    def read(
        self, path: Path, size: int, see: Callable[[bytes], object]
    ) -> tuple[int, str | None]:
        """How many of the first `size` bytes there are, and the variable in them.

        One pass, so that what is hashed by `see` is what was searched. Raises OSError.
        """
        read, name, carry = 0, None, b""
        all_forms = size <= ALL_FORMS_BYTES
        with open_regular(path) as file:
            for block in _blocks(file, size):
                see(block)
                read += len(block)
                if self._forms and name is None:
                    name = self.name_in(carry + block, all_forms=all_forms)
                    carry = (carry + block)[-self._longest :]
        return read, name

    def clear_size(self, path: Path, size: int) -> int:
        """How much of a growing file is sure not to end within a value. Raises OSError."""
        start = max(0, size - self._longest)
        with open_regular(path) as file:
            file.seek(start)
            return start + self._overhang(file.read(size - start))

    def _search(self, path: Path, size: int) -> tuple[str | None, int]:
        """The variable whose value is in there, and how much doesn't end within one."""
        carry, start, clear = b"", 0, 0
        with open_regular(path) as file:
            for block in _blocks(file, size):
                data = carry + block
                if name := self.name_in(data):
                    return name, 0
                clear = start + self._overhang(data)
                carry = data[-self._longest :]
                start += len(data) - len(carry)
        return None, clear

    def _cleaned(self, blocks: Iterator[bytes] | list[bytes], *, ends: bool) -> Iterator[bytes]:
        carry = b""
        for block in blocks:
            data = carry + block
            cut = self._cut(data)
            yield self._marked(data[:cut])
            carry = data[cut:]
        if ends:
            yield self._half(carry) or self._marked(carry)

    def _cut(self, data: bytes) -> int:
        """Where `data` may be cut in two without cutting a value, or what may become one."""
        cut = self._overhang(data)
        for match in self._any.finditer(data):
            if match.start() < cut < match.end():
                return match.start()
        return cut

    def _overhang(self, data: bytes) -> int:
        """Where the end of `data` begins that is the beginning of a value; else its length."""
        cut = len(data)
        for form in self._forms:
            at = data.find(form.data[:1], max(0, len(data) - len(form.data) + 1), cut)
            while at != -1 and not form.data.startswith(data[at:]):
                at = data.find(form.data[:1], at + 1, cut)
            cut = cut if at == -1 else at
        return cut

    def _underhang(self, data: bytes) -> int:
        """How much at the beginning of `data` is the end of a value that begins before it."""
        head = data[: self._longest]
        lengths = (
            length
            for form in self._forms
            for length in range(min(len(form.data) - 1, len(head)), 0, -1)
            if head.startswith(form.data[-length:])
        )
        return max(lengths, default=0)

    def _marked(self, data: bytes) -> bytes:
        if self.name_in(data) is None:
            return data
        return self._any.sub(lambda match: self._by_data[match[0]].mark, data)

    def _half(self, data: bytes) -> bytes:
        """The mark for a value that was cut off at the very end, if most likely it is one."""
        if len(data) < SHORTEST:
            return b""
        return next((form.mark for form in self._forms if form.data.startswith(data)), b"")


def noted(reason: str, withheld: Sequence[str]) -> str:
    """A job's reason, with what was left on the box."""
    if not withheld:
        return reason
    shown = [
        *withheld[:_SHOWN],
        *([f"{len(withheld) - _SHOWN} more"] if withheld[_SHOWN:] else []),
    ]
    return "; ".join([*([reason] if reason else []), "not uploaded: " + ", ".join(shown)])


def _forms(name: str, value: str) -> Iterator[_Form]:
    if len(value) < SHORTEST:
        return
    data = value.encode("utf-8", "surrogateescape")
    yield _Form(data, name, plain=True)
    others = {
        *(
            json.dumps(value, ensure_ascii=ascii_only)[1:-1].encode()
            for ascii_only in (True, False)
        ),
        *(way(data).encode() for way in (quote, quote_plus)),
        quote(data, safe="").encode(),
        *_in_base64(data),
    }
    others |= {re.sub(rb"%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in others}
    for form in others - {data}:
        yield _Form(form, name, plain=False)


def _in_base64(data: bytes) -> Iterator[bytes]:
    """The characters that stand for these bytes alone, wherever among others they begin."""
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + data)
        bits_before, bits = 8 * before, 8 * (before + len(data))
        inner = coded[-(-bits_before // 6) : bits // 6]
        if len(inner) >= SHORTEST:
            yield inner
            yield inner.translate(bytes.maketrans(b"+/", b"-_"))


def _blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    left = size
    while left and (block := file.read(min(left, BLOCK))):
        left -= len(block)
        yield block
