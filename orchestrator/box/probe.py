"""The job of `gpurun kill-proof`: what a box may do to S3, then a result that goes on growing.

Started as `python -m orchestrator.box.probe` in a job's environment; ends well at SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError

from orchestrator.box.spec import BoxSpec, read_spec

EVERY_S = 0.5
ACCESS, TICKS, FINAL = "access.json", "ticks.txt", "final.json"


def main() -> int:
    """0 once it was told to stop."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    out = Path(os.environ["GPURUN_OUT"])
    root = Path(os.environ["GPURUN_ROOT"])
    spec = read_spec(root / "boxes" / f"{os.environ['GPURUN_BOX']}.json")
    (out / ACCESS).write_text(json.dumps(what_s3_says(spec), indent=1))
    last = grow(out / TICKS, told)
    (out / FINAL).write_text(json.dumps({"last": last, "at": time.time()}))
    return 0


def grow(path: Path, told: threading.Event) -> int:
    """Write a numbered line at every tick until told to stop; the last number."""
    number = 0
    with path.open("w") as lines:
        while True:
            lines.write(f"{number} {time.time():.3f}\n")
            lines.flush()
            if told.wait(EVERY_S):
                return number
            number += 1


def what_s3_says(spec: BoxSpec) -> dict[str, str]:
    """What each try came to: `ok`, or S3's word for refusing it."""
    s3: Any = boto3.client("s3", region_name=spec.region)
    own, bucket = f"{spec.prefix}boxes/{spec.box}/probe.txt", spec.bucket
    tries: dict[str, Callable[[], object]] = {
        "put-own": lambda: s3.put_object(Bucket=bucket, Key=own, Body=b"probe"),
        "get-own": lambda: s3.get_object(Bucket=bucket, Key=own),
        "delete-own": lambda: s3.delete_object(Bucket=bucket, Key=own),
        "put-outside": lambda: s3.put_object(Bucket=bucket, Key="runs/probe.txt", Body=b""),
        "get-outside": lambda: s3.get_object(Bucket=bucket, Key=f"control/{spec.run}/probe.txt"),
        "list-outside": lambda: s3.list_objects_v2(Bucket=bucket, Prefix="runs/", MaxKeys=1),
    }
    return {name: _answer(attempt) for name, attempt in tries.items()}


def _answer(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except ClientError as error:
        return str(error.response.get("Error", {}).get("Code", "refused"))
    return "ok"


if __name__ == "__main__":
    raise SystemExit(main())
