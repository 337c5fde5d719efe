"""Makes a set of pins into an environment: every wheel by its hash, nothing resolved on the box.

With GPURUN_WHEELS the wheels come from its folder of the pins' name (for a job's own
requirements: from all its folders) and no index is asked.
uv installs (several times faster) where it's on PATH or among the wheels; else pip does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from orchestrator.box.spec import Pins

INSTALL_S = 3600.0
CHECK_S = 300.0
DRIVER_S = 120.0
"""For nvidia-smi, which answers in seconds: one that hangs must cost little."""
SOURCES = ("antlr4-python3-runtime", "func-timeout")
"""Pure Python that no index has as a wheel; anything else is never built on a box."""
_GPU_CHECK = """
import torch
if not torch.cuda.is_available():
    raise SystemExit("torch %s doesn't see the GPU" % torch.__version__)
print(torch.cuda.get_device_name(0))
"""


class InstallFailed(Exception):
    """The environment can't be made; the message's last lines are the tool's own."""


class NoGpu(InstallFailed):
    """The pins ask for a GPU and there is none that works: trying again can't help."""


def python_of(root: Path, pins: Pins | None) -> Path:
    """The interpreter that jobs on these pins run; the box's own for none."""
    return _venv(root, pins) / "bin" / "python" if pins else Path(sys.executable)


def install(root: Path, pins: Pins, wheels: Path | None) -> None:
    """Make `<root>/venvs/<pins>`, unless it's there already.

    Raises NoGpu, InstallFailed.
    """
    requirements = root / pins.file
    sha256 = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if sha256 != pins.sha256:
        raise InstallFailed(f"{pins.file} has sha256 {sha256}, not {pins.sha256}")
    marker = _venv(root, pins) / ".installed"
    if marker.is_file() and marker.read_text() == sha256:
        return
    if pins.gpu:
        check_driver()
    shutil.rmtree(_venv(root, pins), ignore_errors=True)
    _make(root, pins, requirements, _folders(wheels, pins.name))
    if pins.gpu:
        check_torch(python_of(root, pins))
    marker.write_text(sha256)


def check_driver() -> None:
    """Raises NoGpu."""
    try:
        said = _run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], DRIVER_S
        )
    except InstallFailed as error:
        raise NoGpu(f"no working NVIDIA driver: {error}") from error
    if not said.strip():
        raise NoGpu("no working NVIDIA driver: nvidia-smi lists no GPU")


def check_torch(python: Path) -> None:
    """Raises NoGpu."""
    try:
        _run([str(python), "-c", _GPU_CHECK], CHECK_S)
    except InstallFailed as error:
        raise NoGpu(f"the GPU is of no use to torch: {error}") from error


def _folders(wheels: Path | None, name: str) -> list[Path]:
    if wheels is None:
        return []
    if (wheels / name).is_dir():
        return [wheels / name]
    if not wheels.is_dir():
        raise InstallFailed(f"GPURUN_WHEELS names {wheels}, which isn't there")
    return sorted(folder for folder in wheels.iterdir() if folder.is_dir()) or [wheels]


def _make(root: Path, pins: Pins, requirements: Path, wheels: list[Path]) -> None:
    venv, uv = _venv(root, pins), _uv(root, wheels)
    links = [word for folder in wheels for word in ("--find-links", str(folder))]
    source = ["--no-index", *links] if wheels else []
    built = [word for name in SOURCES for word in ("--no-binary", name)]
    files = ["--only-binary", ":all:", *built]
    lock = ["--require-hashes", "--no-deps", *files, *source, "-r", str(requirements)]
    if uv:
        own = [str(uv), "--no-config", "--cache-dir", str(root / "cache")]
        offline = ["--offline"] if wheels else []
        base = pins.python or sys.executable
        _run([*own, *offline, "venv", "--quiet", "--python", base, str(venv)], INSTALL_S)
        into = ["pip", "install", "--quiet", "--python", str(venv / "bin" / "python")]
        _run([*own, *offline, *into, *lock], INSTALL_S)
        return
    pip = _pip(_python(pins), venv)
    _run([*pip, "install", "--quiet", "--no-compile", *lock], INSTALL_S)


def _pip(base: str, venv: Path) -> list[str]:
    """A pip that installs into the new environment: the box's own, else one put inside.

    Either may be missing: Debian's Python comes without ensurepip, and pip before 22.3 has no
    `--python`.
    """
    options = ["--isolated", "--disable-pip-version-check", "--no-input", "--no-cache-dir"]
    python = str(venv / "bin" / "python")
    _run([base, "-m", "venv", "--without-pip", str(venv)], CHECK_S)
    try:
        _run([base, "-m", "pip", "--python", python, "--version"], CHECK_S)
    except InstallFailed:
        _run([base, "-m", "venv", "--clear", str(venv)], CHECK_S)
        return [python, "-m", "pip", *options]
    return [base, "-m", "pip", "--python", python, *options]


def _python(pins: Pins) -> str:
    if pins.python is None or pins.python == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    found = shutil.which(f"python{pins.python}")
    if found is None:
        raise InstallFailed(f"pins {pins.name} need python{pins.python}; the box has none")
    return found


def _uv(root: Path, wheels: list[Path]) -> Path | None:
    """uv from PATH, or unpacked from its wheel among the wheels."""
    on_path = shutil.which("uv")
    if on_path:
        return Path(on_path)
    for wheel in (wheel for folder in wheels for wheel in sorted(folder.glob("uv-*.whl"))):
        with zipfile.ZipFile(wheel) as archive:
            inside = [name for name in archive.namelist() if name.endswith(".data/scripts/uv")]
            if inside:
                (root / "tools").mkdir(exist_ok=True)
                tool = root / "tools" / "uv"
                tool.write_bytes(archive.read(inside[0]))
                tool.chmod(0o755)
                return tool
    return None


def _venv(root: Path, pins: Pins) -> Path:
    return root / "venvs" / pins.name


def _run(argv: Sequence[str], timeout_s: float) -> str:
    """Standard output. Raises InstallFailed."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout_s, check=False, env=env
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallFailed(f"{argv[0]}: {error}") from error
    if done.returncode:
        raise InstallFailed(_tail(done.stderr or done.stdout) or f"{argv[0]}: {done.returncode}")
    return done.stdout


def _tail(text: str, lines: int = 8) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
