"""A W&B that goes away while a job reports to it holds up the job's end for a set time only."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

# It starts a process with W&B, whose imports alone take a while on a busy machine.
pytestmark = [pytest.mark.trl, pytest.mark.timeout(240)]

REPOSITORY = Path(__file__).parents[3]
JOB = """
import sys
from pathlib import Path
from agent_env.training.config import GrpoConfig, parse_config
from agent_env.training.reporting import settle_reporting

settle_reporting(parse_config(GrpoConfig, {"report_to": ["wandb"]}), Path("out"))
import wandb

wandb.init(project="huggingface")
print("begun", flush=True)
sys.stdin.readline()
wandb.log({"reward": 0.5})
"""
BUCKET = {
    "id": "1",
    "name": "run",
    "displayName": "run",
    "description": "",
    "config": "{}",
    "sweepName": None,
    "historyLineCount": 0,
    "project": {"id": "1", "name": "huggingface", "entity": {"id": "1", "name": "me"}},
}
VIEWER = {"id": "1", "username": "me", "entity": "me", "flags": "{}", "teams": {"edges": []}}


class Wandb(BaseHTTPRequestHandler):
    """As much of W&B's server as it takes to begin a run."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        self._answer(_data(json.loads(body)["query"]) if self.path == "/graphql" else {})

    def _answer(self, answer: dict[str, Any]) -> None:
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


def _data(query: str) -> dict[str, Any]:
    if "upsertBucket" in query:
        return {"data": {"upsertBucket": {"bucket": BUCKET, "inserted": True}}}
    if "viewer" in query:
        return {"data": {"viewer": VIEWER, "serverInfo": {"features": []}}}
    return {"data": {"serverInfo": {"features": []}}}


def test_a_job_ends_and_keeps_its_report_although_wandb_has_gone_away(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Wandb)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    environment = {
        "PYTHONPATH": str(REPOSITORY),
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}",
        "WANDB_API_KEY": 40 * "a",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_FINISH_TIMEOUT": "1",
    }
    with (
        (tmp_path / "stderr.txt").open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", JOB],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as job,
    ):
        assert job.stdout is not None
        assert "begun\n" in job.stdout, (tmp_path / "stderr.txt").read_text()
        server.shutdown()
        server.server_close()
        try:
            job.communicate("\n", timeout=120)
        finally:
            job.kill()
    assert job.returncode == 0, (tmp_path / "stderr.txt").read_text()
    (kept,) = tmp_path.glob("out/wandb/run-*/run-*.wandb")
    assert b"reward" in kept.read_bytes()
