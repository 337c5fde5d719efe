"""Where an address leads, as far as it says so itself."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(url: str) -> bool:
    """Whether the address is the machine's own, and so another one on each machine."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:  # half an IPv6 address
        return False
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified
