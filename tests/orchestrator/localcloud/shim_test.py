"""What the box's power-off commands mean, word by word."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orchestrator.localcloud.guest.shim import NotSupported, order

NOW = datetime(2026, 12, 1, 23, 30, tzinfo=UTC)


def off(delay_s: float, *, force: bool = False) -> dict[str, object]:
    return {"op": "poweroff", "delay_s": delay_s, "force": force}


@pytest.mark.parametrize(
    "line,meaning",
    [
        ("poweroff", off(0)),
        ("poweroff -f", off(0, force=True)),
        ("poweroff -f -f", off(0, force=True)),
        ("systemctl poweroff", off(0)),
        ("systemctl --force poweroff", off(0, force=True)),
        ("halt -p", off(0)),
        ("shutdown now", off(0)),
        ("shutdown -h now", off(0)),
        ("shutdown -P +420", off(25_200)),
        ("shutdown -P 5", off(300)),
        ("shutdown", off(60)),
        ("shutdown -P 23:45", off(900)),
        ("shutdown -P 00:30", off(3600)),
        ("shutdown -c", {"op": "cancel"}),
        ("halt", {"op": "halt"}),
        ("shutdown -H now", {"op": "halt"}),
        ("systemctl halt", {"op": "halt"}),
    ],
)
def test_a_command_line_means_what_it_means_on_an_instance(
    line: str, meaning: dict[str, object]
) -> None:
    name, *args = line.split()
    assert order(name, args, NOW) == meaning


@pytest.mark.parametrize(
    "line", ["reboot", "shutdown -r now", "systemctl start x", "shutdown soon", "systemctl"]
)
def test_what_a_local_box_cannot_do_it_says(line: str) -> None:
    name, *args = line.split()
    with pytest.raises(NotSupported):
        order(name, args, NOW)
