"""W&B and trackio: are they there, before a model is loaded that is to be reported on?

What they write on this machine goes into the job's results, unless their own variables say
otherwise. One that can't be reached costs no training: the report is kept there, to be sent later.
"""

from __future__ import annotations

import atexit
import os
import sys
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from agent_env.training.config import ConfigError, ProgramConfig
from agent_env.training.owner import job_on_box

_SERVER = "https://api.wandb.ai"
_HUB = "https://huggingface.co"
_QUIET = {"offline", "disabled", "dryrun"}
_REACH_S = 10.0
_FINISH_S = 60
"""W&B's own default is to wait at the end until all is sent, however long its server is away."""


def check_reporting(config: ProgramConfig) -> None:
    """Raises ConfigError for what `report_to` asks for and can't have."""
    if faults := list(_faults(config)):
        raise ConfigError(faults)


def settle_reporting(config: ProgramConfig, out: Path) -> None:
    """Check, and set this process's environment so that the reports are kept below `out`.

    Asks each server once, for 10 s at most. Raises ConfigError where one refuses the token; where
    one doesn't answer, says so and has the report kept on this machine only.
    """
    check_reporting(config)
    if "wandb" in config.report_to:
        _settle_wandb(out)
    if "trackio" in config.report_to:
        _settle_trackio(out)


def run_name(out: Path) -> str:
    """The job's name in a report, the same at each of its starts."""
    return "-".join(job_on_box() or (out.absolute().parent.name,))


def _faults(config: ProgramConfig) -> Iterator[str]:
    for name in config.report_to:
        if find_spec(name) is None:
            yield (
                f"config.report_to: the package {name} isn't installed here: pip install {name}, "
                f"or on a box add it to the job's pins"
            )
        elif name == "wandb" and not _can_log_in():
            yield (
                "config.report_to: wandb has no token: give the job the secret WANDB_API_KEY, or "
                "set WANDB_MODE=offline"
            )
        elif name == "trackio":
            yield from _trackio_faults()


def _trackio_faults() -> Iterator[str]:
    if (space := os.environ.get("TRACKIO_SPACE_ID")) and not _hub_token():
        yield (
            f"config.report_to: trackio has no token for the Space {space}: give the job the "
            "secret HF_TOKEN, or leave TRACKIO_SPACE_ID out"
        )
    server = os.environ.get("TRACKIO_SERVER_URL")
    token = os.environ.get("TRACKIO_WRITE_TOKEN")
    if server and not space and not token and "write_token=" not in server:
        yield (
            "config.report_to: trackio's server takes no report without a token: give the job the "
            "secret TRACKIO_WRITE_TOKEN, or leave TRACKIO_SERVER_URL out"
        )


def _can_log_in() -> bool:
    told = os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE") in _QUIET
    return bool(told) or _in_netrc()


def _in_netrc() -> bool:
    """Where `wandb login` puts a token; the file may have those of other machines only."""
    path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    server = urlsplit(os.environ.get("WANDB_BASE_URL") or _SERVER).hostname
    try:
        return server in path.read_text(errors="replace").split()
    except OSError:
        return False


def _hub_token() -> str | None:
    """As the hub's client finds it, which must not be imported yet: it keeps what it finds."""
    if told := os.environ.get("HF_TOKEN", "").strip():
        return told
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    path = Path(os.environ.get("HF_TOKEN_PATH") or home / "token")
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _settle_wandb(out: Path) -> None:
    if "WANDB_DIR" not in os.environ:
        # It must be there, or W&B takes a folder of temporary files.
        out.mkdir(parents=True, exist_ok=True)
        os.environ["WANDB_DIR"] = str(out)
        atexit.register(_drop_links, out / "wandb")
    os.environ.setdefault("WANDB_FINISH_TIMEOUT", str(_FINISH_S))
    if os.environ.get("WANDB_MODE") in _QUIET:
        return
    server = (os.environ.get("WANDB_BASE_URL") or _SERVER).rstrip("/")
    key = os.environ.get("WANDB_API_KEY")
    basic = {"Authorization": f"Basic {b64encode(f'api:{key}'.encode()).decode()}"} if key else {}
    query = b'{"query": "query {viewer {username}}"}'
    answer = _ask(f"{server}/graphql", basic, query)
    if answer == 401 and key:
        raise ConfigError([f"config.report_to: {server} refuses the token in WANDB_API_KEY"])
    if isinstance(answer, str):
        os.environ["WANDB_MODE"] = "offline"
        folder = Path(os.environ["WANDB_DIR"]) / "wandb"
        _warn(
            f"{server} can't be reached ({answer})", folder, f"wandb sync {folder}/offline-run-*"
        )


def _drop_links(folder: Path) -> None:
    """Results are files only; W&B's links name the newest of them and a log outside."""
    for path in folder.rglob("*"):
        if path.is_symlink():
            path.unlink(missing_ok=True)


def _settle_trackio(out: Path) -> None:
    folder = os.environ.setdefault("TRACKIO_DIR", str(out / "trackio"))
    if not (space := os.environ.get("TRACKIO_SPACE_ID")):
        return
    answer = _ask_hub()
    if answer == 401:
        raise ConfigError([f"config.report_to: the hub of the Space {space} refuses HF_TOKEN"])
    if isinstance(answer, str):
        del os.environ["TRACKIO_SPACE_ID"]
        then = f"TRACKIO_DIR={folder} trackio sync --project huggingface --space-id {space}"
        _warn(f"the hub of the Space {space} can't be reached ({answer})", folder, then)
    else:
        # Else a model that is all here would have the hub switched off, and trackio with it.
        os.environ["HF_HUB_OFFLINE"] = "0"


def _ask_hub() -> int | str:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return "HF_HUB_OFFLINE is set"
    hub = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    return _ask(f"{hub}/api/whoami-v2", {"Authorization": f"Bearer {_hub_token()}"})


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would carry the token to somebody else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _ask(url: str, headers: dict[str, str], body: bytes | None = None) -> int | str:
    """The status of what answers there, or why nothing does."""
    headers = {"Content-Type": "application/json", **headers}
    try:
        request = Request(url, data=body, headers=headers)  # noqa: S310 - a person's own setting
        with build_opener(_NoRedirect()).open(request, timeout=_REACH_S) as reply:
            return int(reply.status)
    except HTTPError as error:
        with error:
            return error.code
    except (OSError, HTTPException) as error:
        return str(getattr(error, "reason", error))
    except ValueError:  # its own words may have the token in them
        return "the address isn't one, or the token has a character that can't be sent"


def _warn(what: str, folder: Path | str, then: str) -> None:
    text = f"warning: {what}: the report is kept in {folder} only; send it later with: {then}\n"
    sys.stdout.write(text)
    sys.stdout.flush()
