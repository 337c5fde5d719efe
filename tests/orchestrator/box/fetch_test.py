"""Fetching with the standard library alone: botocore's signature, and bytes that are hashed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from orchestrator.box import fetch

from .rig import BUCKET, REGION, Cloud

AT = "20261129T193000Z"
FETCH = Path(fetch.__file__)


@pytest.mark.parametrize("method, token", [("GET", ""), ("GET", "t/+="), ("PUT", "tok")])
@pytest.mark.parametrize("url", ["http://127.0.0.1:5000/b/runs/x-1/a~b.tar.gz", None])
def test_the_signature_is_the_one_that_botocore_makes(
    method: str, token: str, url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url or fetch.address(BUCKET, REGION, "runs/x/payload/0a.tar.gz")
    digest = hashlib.sha256(b"body").hexdigest()
    headers = fetch.signed(method, url, REGION, fetch.Keys("AKIA", "se/cret", token), digest, AT)
    ours = headers.pop("authorization")
    given = {k: v for k, v in headers.items() if k in ("content-type", "x-amz-content-sha256")}
    request = AWSRequest(method=method, url=url, headers=given, data=b"body")
    request.context["timestamp"] = AT
    signer = S3SigV4Auth(Credentials("AKIA", "se/cret", token or None), "s3", REGION)
    monkeypatch.setattr("botocore.auth.get_current_datetime", _at)
    signer.add_auth(request)
    assert request.headers["Authorization"] == ours


def _at(*_: object, **__: object) -> object:
    return datetime(2026, 11, 29, 19, 30, tzinfo=UTC)


def test_on_aws_the_bucket_is_asked_by_its_own_name_over_tls() -> None:
    assert (
        fetch.address("b-1", "eu-west-1", "a b") == "https://b-1.s3.eu-west-1.amazonaws.com/a%20b"
    )


@pytest.fixture
def imds() -> Iterator[str]:
    """An IMDSv2 that knows a role and answers nothing without its token."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer(200, "secret-token")

        def do_GET(self) -> None:
            role = "/latest/meta-data/iam/security-credentials/"
            keys = {"AccessKeyId": "ASIA", "SecretAccessKey": "s", "Token": "t"}
            said = {role: "box-role", role + "box-role": json.dumps(keys)}.get(self.path, "")
            known = self.headers.get("X-aws-ec2-metadata-token") == "secret-token"
            self._answer(200 if known else 401, said)

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def run_fetch(cloud: Cloud, imds: str, *words: str) -> subprocess.CompletedProcess[str]:
    """As user data runs it: an interpreter without any package of ours or of boto3's."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(FETCH), *words],
        env={"AWS_ENDPOINT_URL": cloud.url, "AWS_EC2_METADATA_SERVICE_ENDPOINT": imds},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_a_payload_is_fetched_with_the_roles_credentials_and_checked(
    cloud: Cloud, imds: str, tmp_path: Path
) -> None:
    body = b"payload" * 500_000
    cloud.s3.put_object(Bucket=BUCKET, Key="runs/r/p", Body=body)
    sha256, path = hashlib.sha256(body).hexdigest(), tmp_path / "p"
    done = run_fetch(cloud, imds, "get", "5", BUCKET, REGION, "runs/r/p", sha256, str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_bytes() == body


def test_a_payload_with_another_hash_is_refused_after_a_bounded_number_of_tries(
    cloud: Cloud, imds: str, tmp_path: Path
) -> None:
    cloud.s3.put_object(Bucket=BUCKET, Key="p", Body=b"other")
    path = tmp_path / "p"
    done = run_fetch(cloud, imds, "get", "1", BUCKET, REGION, "p", "0" * 64, str(path))
    assert done.returncode == 1
    assert "not 0000" in done.stderr
    assert not path.exists()


def test_without_credentials_it_gives_up_when_its_patience_is_over(
    cloud: Cloud, tmp_path: Path
) -> None:
    words = ("get", "1", BUCKET, REGION, "p", "0" * 64, str(tmp_path / "p"))
    done = run_fetch(cloud, "http://127.0.0.1:9", *words)
    assert done.returncode == 1
    assert "refused" in done.stderr


def test_a_log_is_put_with_its_last_mebibyte(cloud: Cloud, imds: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a" * 10 + b"z" * (1 << 20))
    done = run_fetch(cloud, imds, "put", "5", BUCKET, REGION, "log", str(tmp_path / "log"))
    assert (done.returncode, done.stderr) == (0, "")
    assert cloud.s3.get_object(Bucket=BUCKET, Key="log")["Body"].read() == b"z" * (1 << 20)
