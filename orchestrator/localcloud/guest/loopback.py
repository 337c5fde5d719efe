"""The metadata address on a box's own loopback, set without any system tool.

Run as a program, it is the functional probe of the box driver: exit 0 means that this machine
lets an ordinary user build a box's network.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys

METADATA_ADDRESS = "169.254.169.254"
# From linux/sockios.h and linux/if.h.
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8916, 0x891C, 0x8913, 0x8914
_IFF_UP = 0x1


def set_up() -> None:
    """Bring `lo` up and give it the metadata address as well; raises OSError where forbidden."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sh22x", b"lo", 0))
        flags = struct.unpack("16sh22x", answer)[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))
        fcntl.ioctl(control, _SIOCSIFADDR, _request(METADATA_ADDRESS))
        fcntl.ioctl(control, _SIOCSIFNETMASK, _request("255.255.255.255"))


def _request(address: str) -> bytes:
    family_and_port = struct.pack("=HH", socket.AF_INET, 0)
    return (
        struct.pack("16s4s4s8x", b"lo:0", family_and_port, socket.inet_aton(address)) + b"\0" * 8
    )


if __name__ == "__main__":
    try:
        set_up()
    except OSError as wrong:
        sys.exit(f"the metadata address can't be set here: {wrong}")
