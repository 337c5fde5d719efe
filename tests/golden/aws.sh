#!/bin/bash
# Box l40s of run golden-261129-120000-ab2c. Before anything that can fail: when this box ends. Runs at every boot.
end_at=1795978800 limit_s=25200 # 2026-11-29 19:00:00 UTC, or after so many seconds of life
GPURUN_ROOT=${GPURUN_ROOT:-/opt/gpurun} lived=0
end_box() { # none of these is waited for: it may hang
  poweroff &
  sleep 60
  poweroff -f -f &
  sleep 60
  echo 1 >/proc/sys/kernel/sysrq
  echo o >/proc/sysrq-trigger
}
watch() { # until $1 by the wall clock, or $2 s of life, $3 of which are over; counts them in $4
  local began up ticks=0
  read -r began _ </proc/uptime || began=0
  began=${began%.*} up=$began
  while [[ $(date +%s) -lt $1 && $(($3 + up - began)) -lt $2 ]]; do
    sleep 1
    read -r up _ </proc/uptime || up=$((up + 1))
    up=${up%.*}
    # In place, as a full disk has no room for another file; ahead, as nobody may get to the next.
    ((ticks++ % 10)) || printf '%012d\n' $(($3 + up - began + 10)) 3<>"$4" >&3
  done
  end_box
}
apart() { # in a session of its own, where no signal to this script reaches it
  if command -v setsid >/dev/null; then setsid --wait "$@"; else "$@"; fi
}
[ -r "$GPURUN_ROOT/lived" ] && read -r lived <"$GPURUN_ROOT/lived"
[[ $lived =~ ^[0-9]+$ ]] && lived=$((10#$lived)) || lived=0
left_s=$((limit_s > lived ? limit_s - lived : 0))
apart nohup bash -c "$(declare -f end_box watch); watch $end_at $limit_s $lived \"\$0\"" "$GPURUN_ROOT/lived" >/dev/null 2>&1 </dev/null &
apart nohup bash -c "$(declare -f end_box); sleep $left_s; end_box" >/dev/null 2>&1 </dev/null &
mkdir -p "$GPURUN_ROOT"
[ "$0" -ef "$GPURUN_ROOT/user-data" ] || { cp "$0" "$GPURUN_ROOT/part" && mv "$GPURUN_ROOT/part" "$GPURUN_ROOT/user-data"; }
wall_s=$((end_at - $(date +%s)))
((left_s > wall_s)) && left_s=$((wall_s > 0 ? wall_s : 0))
# Late, as for the five minutes before it nobody but root may log in.
command -v shutdown >/dev/null && shutdown -P "+$(((left_s + 59) / 60 + 5))"
if [ -d /run/systemd/system ]; then
  timer() { # name, calendar time, command
    printf '[Service]\nType=oneshot\nExecStart=%s\n' "$3" >"/etc/systemd/system/$1.service"
    printf '[Timer]\nOnCalendar=%s\nAccuracySec=1s\nPersistent=true\n[Install]\nWantedBy=timers.target\n' "$2" >"/etc/systemd/system/$1.timer"
  }
  timer gpurun-end '2026-11-29 19:00:00 UTC' '/usr/bin/systemctl poweroff'
  timer gpurun-end-hard '2026-11-29 19:05:00 UTC' '/usr/bin/systemctl poweroff --force --force'
  printf '[Service]\nExecStart=/bin/bash -c "[ -s %s ] && exec /bin/bash %s; systemctl poweroff"\nRestart=always\nRestartSec=5\nTasksMax=infinity\nOOMPolicy=continue\n[Install]\nWantedBy=multi-user.target\n' \
    "$GPURUN_ROOT/user-data" "$GPURUN_ROOT/user-data" >/etc/systemd/system/gpurun-again.service
  systemctl daemon-reload && systemctl enable gpurun-again.service && systemctl enable --now gpurun-end.timer gpurun-end-hard.timer
  # An upgrade under way would change the driver's library under a job, and hold dpkg's lock.
  systemctl --no-block mask --now apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service unattended-upgrades.service
fi

[ -s "$GPURUN_ROOT/booted-at" ] || date +%s >"$GPURUN_ROOT/booted-at"
read -r GPURUN_BOOTED_AT <"$GPURUN_ROOT/booted-at"
[[ $GPURUN_BOOTED_AT =~ ^[0-9]+$ ]] || GPURUN_BOOTED_AT=$(date +%s)
export GPURUN_ROOT GPURUN_BOOTED_AT
export AWS_REGION=us-west-2 AWS_DEFAULT_REGION=us-west-2
log=$GPURUN_ROOT/console.log bucket=gpurun-123456789012-us-west-2
console_key=runs/golden-261129-120000-ab2c/boxes/l40s/console.log
payload_key=runs/golden-261129-120000-ab2c/payload/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.tar.gz
payload_sha256=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
s3() { python3 "$GPURUN_ROOT/fetch.py" "$1" "$2" "$bucket" "$AWS_REGION" "${@:3}"; }
agent() {
  PYTHONPATH=$GPURUN_ROOT/agent apart python3 -m orchestrator.box \
    --root "$GPURUN_ROOT" --box l40s --end-with poweroff "$@"
}
say() { echo "$*" || true; } # a full disk takes no words
leave() {
  set +e
  trap - ERR
  say "user data ends with status $1"
  s3 put 60 "$console_key" "$log"
  end_box
}
trap 'leave "$?"' EXIT
trap 'say "line $LINENO failed"' ERR
set -Eeuo pipefail
mkdir -p "$GPURUN_ROOT"
exec >>"$log" 2>&1
say "booted; ends at $end_at, has lived $lived s of $limit_s"

if [ ! -e "$GPURUN_ROOT/ready" ]; then
  cat >"$GPURUN_ROOT/fetch.py" <<'END_OF_FETCH'
"""S3 for a box's first seconds: SigV4 by hand, nothing but the standard library.

The text of this file goes into user data as it is, where neither boto3 nor an `aws` command may
be relied on; so it is small, runs on Python 3.10 and imports nothing of ours. Credentials come
from the environment, else from the instance's role through IMDSv2, as botocore takes them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pathlib
import sys
import time
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
CHUNK = 1 << 20


class Keys(NamedTuple):
    access: str
    secret: str
    token: str


def metadata(path: str, timeout_s: float = 5) -> str:
    """What the instance metadata service says under `path`; raises OSError."""
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"
    base = base.rstrip("/") + "/latest/"
    name = "X-aws-ec2-metadata-token"
    ask = urllib.request.Request(base + "api/token", method="PUT")
    ask.add_header(name + "-ttl-seconds", "300")
    with OPENER.open(ask, timeout=timeout_s) as reply:
        token = reply.read().decode()
    ask = urllib.request.Request(base + "meta-data/" + path, headers={name: token})
    with OPENER.open(ask, timeout=timeout_s) as reply:
        return str(reply.read().decode())


def credentials() -> Keys:
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        names = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
        return Keys(*(os.environ.get(name, "") for name in names))
    role = metadata("iam/security-credentials/").split()[0]
    said = json.loads(metadata("iam/security-credentials/" + role))
    return Keys(said["AccessKeyId"], said["SecretAccessKey"], said.get("Token", ""))


def address(bucket: str, region: str, key: str) -> str:
    path = urllib.parse.quote(key, safe="/-_.~")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        return endpoint.rstrip("/") + "/" + bucket + "/" + path
    return f"https://{bucket}.s3.{region}.amazonaws.com/{path}"


def signed(
    method: str, url: str, region: str, keys: Keys, body_sha256: str, at: str
) -> dict[str, str]:
    """The headers of one S3 request signed with Signature Version 4; `at` is YYYYMMDDTHHMMSSZ.

    Source: Amazon S3 API reference, "Authenticating requests: using the Authorization header".
    """
    parts = urllib.parse.urlsplit(url)
    headers = {"host": parts.netloc, "x-amz-content-sha256": body_sha256, "x-amz-date": at}
    if method == "PUT":
        headers["content-type"] = "text/plain; charset=utf-8"
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join((method, parts.path, parts.query, lines, names, body_sha256))
    scope = f"{at[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", at, scope, digest))
    key = ("AWS4" + keys.secret).encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    seal = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope}, "
        f"SignedHeaders={names}, Signature={seal}"
    )
    return headers


def call(method: str, bucket: str, region: str, key: str, body: bytes | None = None) -> Any:
    url = address(bucket, region, key)
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = hashlib.sha256(body or b"").hexdigest()
    headers = signed(method, url, region, credentials(), digest, at)
    ask = urllib.request.Request(url, data=body, method=method, headers=headers)
    return OPENER.open(ask, timeout=30)


def get(bucket: str, region: str, key: str, sha256: str, path: str) -> None:
    """Fetch `key` into `path`, which appears only once its bytes match; raises OSError."""
    digest = hashlib.sha256()
    part = pathlib.Path(path + ".part")
    with call("GET", bucket, region, key) as reply, part.open("wb") as file:
        while chunk := reply.read(CHUNK):
            digest.update(chunk)
            file.write(chunk)
    if digest.hexdigest() != sha256:
        raise OSError(f"{key} has sha256 {digest.hexdigest()}, not {sha256}")
    part.replace(path)


def put(bucket: str, region: str, key: str, path: str) -> None:
    """Put the last MiB of a log under `key`; raises OSError."""
    with pathlib.Path(path).open("rb") as log:
        log.seek(max(0, log.seek(0, 2) - CHUNK))
        call("PUT", bucket, region, key, log.read(CHUNK)).close()


def main(verb: str, patience_s: str, *words: str) -> int:
    """`get SECONDS BUCKET REGION KEY SHA256 FILE` or `put SECONDS BUCKET REGION KEY FILE`."""
    end, pause = time.monotonic() + float(patience_s), 0.5
    while True:
        try:
            (get if verb == "get" else put)(*words)
            return 0
        except (OSError, ValueError, LookupError) as error:
            sys.stderr.write(f"{verb} {words[2]}: {error}\n")
            if time.monotonic() + pause > end:
                return 1
        time.sleep(pause)
        pause = min(pause * 2, 15)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
END_OF_FETCH
  payload=$GPURUN_ROOT/payload.tar.gz
  s3 get 600 "$payload_key" "$payload_sha256" "$payload"
  tar --no-same-owner -xzf "$payload" -C "$GPURUN_ROOT"
  true >"$GPURUN_ROOT/ready"
fi

host_key=${GPURUN_SSH_HOST_KEY:-/etc/ssh/ssh_host_ed25519_key}
if [ -d "${host_key%/*}" ]; then
  install -m 600 "$GPURUN_ROOT/ssh/host_ed25519" "$host_key"
  rm -f "$host_key.pub"
  [ ! -d /run/systemd/system ] || systemctl restart ssh || true
fi

for try in 1 2 3; do # a second agent goes on where a dead one stopped
  agent && exit
  say "agent $try died"
done
agent --last-sync
