"""The root file system of a bubblewrap box, as folders and files on the host."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orchestrator.localcloud.box import BoxSpec

# Folders of the box's own; everything else is the host's /usr, read-only.
VOLUME = ("etc", "root", "var", "opt", "home", "srv", "mnt", "tmp")
POWER_COMMANDS = ("shutdown", "poweroff", "halt", "reboot", "systemctl")
# bubblewrap 0.8 has no overlay: the few host files that programs look for are copied.
_HOST_FILES = [
    *("alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "ld.so.cache"),
    *("ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "os-release"),
    *("protocols", "services", "ssl"),
]
PATH = "/run/gpurun/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GUEST = Path(__file__).parent / "guest"
GUEST_IN_BOX = "/run/gpurun/lib/orchestrator/localcloud/guest"


def python() -> Path:
    """The interpreter that boxes get: this one, without its virtual environment."""
    return Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


def build(spec: BoxSpec, guest: dict[str, Any]) -> Path:
    """Write the box's folders; returns the root. `guest` is what its pid 1 reads."""
    root = spec.folder / "root"
    for name in (
        *VOLUME,
        "usr-local",
        "var/log",
        "var/lib/cloud/instance",
        "home/ubuntu/.ssh",
        "etc/ssh",
    ):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    _copy_host_files(root / "etc")
    _write(root, _identity_files(spec.instance_id))
    _write(root, {f"{home}/.ssh/authorized_keys": spec.authorized_key + "\n" for home in _HOMES})
    user_data = root / "var/lib/cloud/instance/user-data.txt"
    user_data.write_bytes(spec.user_data)
    _write(spec.folder, {"box/box.json": json.dumps(guest), "box/nothing": ""})
    _write_commands(spec.folder / "bin")
    (spec.folder / "host").mkdir()
    return root


_HOMES = ("root", "home/ubuntu")


def _identity_files(host: str) -> dict[str, str]:
    return {
        "etc/passwd": (
            "root:x:0:0:root:/root:/bin/bash\n"
            "ubuntu:x:0:0:Ubuntu:/home/ubuntu:/bin/bash\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        ),
        "etc/group": "root:x:0:\nubuntu:x:0:\nnogroup:x:65534:\n",
        "etc/hostname": f"{host}\n",
        "etc/hosts": f"127.0.0.1 localhost {host}\n",
        "etc/resolv.conf": "",
        "etc/profile": f"export PATH={PATH}\n",
    }


def _copy_host_files(into: Path) -> None:
    for name in _HOST_FILES:
        source = Path("/etc") / name
        if source.is_dir():
            shutil.copytree(
                source, into / name, symlinks=True, dirs_exist_ok=True, ignore=_unreadable
            )
        elif source.exists() and os.access(source, os.R_OK):
            shutil.copy(source, into / name)


def _unreadable(folder: str, names: Iterable[str]) -> list[str]:
    return [n for n in names if not os.access(Path(folder, n), os.R_OK)]


def _write_commands(folder: Path) -> None:
    """The box's python3, its power-off commands, and a sudo for its one user."""
    here = python()
    power = f'#!/bin/sh\nexec {here} -I -S -B {GUEST_IN_BOX}/shim.py "${{0##*/}}" "$@"\n'
    sudo = (
        '#!/bin/sh\nwhile :; do case "$1" in\n'
        '  -u|-g) shift 2 ;;\n  -*) shift ;;\n  *=*) export "$1"; shift ;;\n'
        '  *) exec "$@" ;;\nesac; done\n'
    )
    # A script, not a link: a virtual environment made with it must find the real prefix.
    interpreter = f'#!/bin/sh\nexec {here} "$@"\n'
    scripts = dict.fromkeys(POWER_COMMANDS, power) | {"sudo": sudo}
    scripts |= dict.fromkeys(("python3", here.name), interpreter)
    _write(folder, scripts)
    for name in scripts:
        (folder / name).chmod(0o755)


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
