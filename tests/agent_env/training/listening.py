"""The addresses on which this process and all that it started listen, from /proc."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

LISTENS = "0A"  # net/tcp_states.h

Address = IPv4Address | IPv6Address


def addresses(pid: int) -> set[Address]:
    """Of the process and its descendants."""
    sockets = {socket for one in _family(pid) for socket in _sockets(one)}
    return {
        _address(local.partition(":")[0])
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        for _, local, _, state, *_, inode in [line.split()[:10]]
        if state == LISTENS and inode in sockets
    }


def is_loopback(address: Address) -> bool:
    """Also where it is an address of IPv4 in IPv6's clothes."""
    plain = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (plain or address).is_loopback


def _family(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                link = str(descriptor.readlink())
                if link.startswith("socket:["):
                    yield link[len("socket:[") : -1]


def _address(digits: str) -> Address:
    """The kernel writes words of four bytes, each in the machine's order."""
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    raw = b"".join(words)
    return IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw)
