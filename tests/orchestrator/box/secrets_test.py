"""A job's secrets on a real agent: in the job's environment, in nothing that leaves the box."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import boto3
import pytest

from .rig import BUCKET, PREFIX, REGION, Rig, until

pytestmark = pytest.mark.slow

HF, WANDB = "hf_Canary0123456789", "wandb+canary/0123456789=="
SOURCES = {"HF_TOKEN": "ssm:/team/hf", "WANDB_API_KEY": "secretsmanager:team/wandb"}


def client(rig: Rig, service: str) -> Any:
    make: Any = boto3.client
    return make(service, endpoint_url=rig.cloud.url, region_name=REGION)


@pytest.fixture
def keeper(rig: Rig) -> Rig:
    """A rig whose cloud keeps both secrets."""
    ssm, manager = client(rig, "ssm"), client(rig, "secretsmanager")
    ssm.put_parameter(Name="/team/hf", Value=HF, Type="SecureString", Overwrite=True)
    kept = [secret["Name"] for secret in manager.list_secrets()["SecretList"]]
    if "team/wandb" not in kept:
        manager.create_secret(Name="team/wandb", SecretString=WANDB)
    rig.spec["secrets"] = SOURCES
    return rig


def everything(rig: Rig) -> dict[str, bytes]:
    """Each object that the box left in the bucket."""
    listed = rig.cloud.s3.list_objects_v2(Bucket=BUCKET, Prefix=PREFIX).get("Contents", [])
    return {item["Key"]: rig.read(item["Key"].removeprefix(PREFIX)) or b"" for item in listed}


def those_with_a_value(found: dict[str, bytes]) -> list[str]:
    forms = [HF.encode(), WANDB.encode(), base64.b64encode(HF.encode())[:20]]
    return [key for key, data in found.items() if any(form in data for form in forms)]


def test_a_job_has_its_secrets_in_its_environment_and_what_it_tells_of_them_is_marked(
    keeper: Rig,
) -> None:
    metric = '{"step": 1, "max_steps": 1, "kind": "final", "note": "\'$HF_TOKEN\'", "n": 2}'
    keeper.job(
        "tells",
        f"echo token $HF_TOKEN and $WANDB_API_KEY; echo '{metric}' >>$GPURUN_METRICS;"
        ' printf %s "$HF_TOKEN$WANDB_API_KEY" | sha256sum >out/hash;'
        " echo $HF_TOKEN | base64; echo last $HF_TOKEN >&2; exit 3",
        retries=0,
    )
    keeper.run()
    right = hashlib.sha256((HF + WANDB).encode()).hexdigest()
    assert keeper.file("tells", "out/hash").decode().split()[0] == right
    log = keeper.file("tells", "log.txt").decode()
    assert "token ***HF_TOKEN*** and ***WANDB_API_KEY***" in log
    assert "***HF_TOKEN***" in keeper.file("tells", "metrics.jsonl").decode()
    status = keeper.status("tells")
    assert status["reason"] == "exit status 3: last ***HF_TOKEN***"
    assert status["metrics"]["note"] == "***HF_TOKEN***"
    assert status["metrics"]["n"] == 2
    assert those_with_a_value(everything(keeper)) == []
    own = ("console.log", "boxes/l4.json", "jobs/tells/agent.json", "jobs/tells/job.json")
    assert those_with_a_value({name: (keeper.root / name).read_bytes() for name in own}) == []


def test_a_result_that_holds_a_secret_stays_on_the_box_and_the_status_says_which(
    keeper: Rig,
) -> None:
    keeper.job(
        "leaks",
        "echo $HF_TOKEN >out/config.json; echo x >out/fine; ln -s fine out/link;"
        " echo y >out/$HF_TOKEN;"
        " mkdir out/checkpoint-1; echo {} >out/checkpoint-1/trainer_state.json;"
        " echo $WANDB_API_KEY >out/checkpoint-1/args.txt",
    )
    keeper.run()
    final = keeper.manifests("leaks")[-1]
    assert final["final"]
    assert set(final["files"]) == {"log.txt", "out/fine"}
    status = keeper.status("leaks")
    assert status["state"] == "done"
    for said in ("out/config.json", "HF_TOKEN", "checkpoint-1", "WANDB_API_KEY"):
        assert said in status["reason"]
    complete = keeper.json("jobs/leaks/COMPLETE")
    assert status["reason"].endswith(complete["status"]["reason"])
    assert complete["left_out"] == ["out/link: a link, not kept"]
    assert complete["withheld"] == [
        "out/***HF_TOKEN*** (is named by HF_TOKEN)",
        "out/checkpoint-1 (whole checkpoint: out/checkpoint-1/args.txt (holds WANDB_API_KEY))",
        "out/config.json (holds HF_TOKEN)",
    ]
    assert those_with_a_value(everything(keeper)) == []


def test_a_value_that_is_half_written_when_a_log_is_committed_never_gets_out(keeper: Rig) -> None:
    keeper.job(
        "slow",
        'printf "start %s" "${HF_TOKEN:0:9}"; touch out/half; until [ -e go ]; do sleep 0.1; done;'
        ' printf "%s end\\n" "${HF_TOKEN:9}"',
    )
    agent = keeper.start()
    work = keeper.root / "jobs" / "slow" / "work"
    until((work / "out" / "half").exists)
    until(lambda: any("out/half" in manifest["files"] for manifest in keeper.manifests("slow")))
    assert not [k for k, data in everything(keeper).items() if HF[:9].encode() in data]
    (work / "go").touch()
    assert agent.wait(30) == 0
    assert keeper.file("slow", "log.txt") == b"start ***HF_TOKEN*** end\n"
    assert those_with_a_value(everything(keeper)) == []


def test_a_job_whose_secret_cant_be_read_fails_and_says_which(keeper: Rig) -> None:
    keeper.spec["secrets"] = {"HF_TOKEN": "ssm:/not/there"}
    keeper.job("never", "true")
    keeper.run(within_s=90)
    status = keeper.status("never")
    assert status["state"] == "failed"
    assert status["reason"] == "HF_TOKEN can't be read from ssm:/not/there: ParameterNotFound"


def test_a_second_agent_knows_the_secrets_before_it_uploads_what_the_first_one_left(
    keeper: Rig,
) -> None:
    keeper.spec["loss_bound_s"] = 100
    keeper.job("told", "echo token $HF_TOKEN; touch out/here; exec sleep 60", retries=0)
    agent = keeper.start()
    until((keeper.root / "jobs" / "told" / "work" / "out" / "here").exists)
    agent.kill()
    agent.wait()
    second = keeper.start()
    until(lambda: len(keeper.agents) == 2 and keeper.status("told").get("attempt") == 2)
    second.terminate()
    assert second.wait(60) == 0
    assert b"***HF_TOKEN***" in keeper.file("told", "log.txt")
    assert those_with_a_value(everything(keeper)) == []
