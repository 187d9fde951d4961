"""The files of examples/anywhere are what each scheduler's documents ask for."""

from __future__ import annotations

import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from domain.watching.joins import Join, joined_by
from tests.examples.pods import ANYWHERE, JOB_UID, Pod, documents, pods_of_job, pods_of_pytorch_job

SECRETS = {"token": "rz_secret"}
OLDEST = "1.29"
PYTORCH_JOB = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "spec": {"elasticPolicy", "nprocPerNode", "pytorchReplicaSpecs", "runPolicy"},
    "runPolicy": {
        "activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "managedBy", "schedulingPolicy", "suspend",
        "ttlSecondsAfterFinished",
    },
    "replica": {"replicas", "restartPolicy", "template"},
}  # fmt: skip
"""Fields of the published definition of kubeflow.org/v1; `pytorchReplicaSpecs` is the only one that it requires."""
SKYPILOT = {
    "config", "envs", "experimental", "file_mounts", "inputs", "name", "num_nodes", "outputs", "resources", "run",
    "secrets", "service", "setup", "volumes", "workdir",
}  # fmt: skip
"""Fields of a task, by the reference of SkyPilot's YAML."""
DSTACK = {
    "backends", "commands", "creation_policy", "docker", "env", "files", "fleets", "idle_duration", "image",
    "instance_types", "max_duration", "max_price", "name", "nodes", "nvcc", "ports", "priority", "privileged",
    "python", "regions", "registry_auth", "repos", "reservation", "resources", "retry", "schedule", "shell",
    "single_branch", "spot_policy", "startup_order", "stop_criteria", "stop_duration", "tags", "type", "user",
    "utilization_policy", "volumes", "working_dir",
}  # fmt: skip
"""Fields of a task, by dstack's reference."""


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_the_indexed_job_agrees_with_the_schemas_of_kubernetes(version: str):
    for document in documents("indexed-job.yaml"):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_noticed():
    _, job = documents("indexed-job.yaml")
    job["spec"]["template"]["spec"]["terminationGracePeriod"] = 120
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, OLDEST, strict=True)


def test_the_pods_of_the_indexed_job_find_each_other():
    service, job = documents("indexed-job.yaml")
    pod = job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert f"--master-addr={job['metadata']['name']}-0.{pod['subdomain']}" in pod["containers"][0]["args"]


def test_the_pytorch_job_has_fields_of_its_definition_and_pods_that_kubernetes_takes():
    (job,) = documents("pytorchjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"} and replicas["Master"]["replicas"] == 1
    parts = {"": [job], "spec": [job["spec"]], "runPolicy": [job["spec"]["runPolicy"]], "replica": replicas.values()}
    for name, objects in parts.items():
        assert all(set(each) <= PYTORCH_JOB[name] for each in objects), name
    for replica in replicas.values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trainer"}, "spec": replica["template"]["spec"]}
        kubernetes_validate.validate(pod, OLDEST, strict=True)
        assert [container["name"] for container in pod["spec"]["containers"]] == ["pytorch"]


@pytest.mark.parametrize("name", ["indexed-job.yaml", "pytorchjob.yaml"])
def test_pods_are_not_started_again_alone_and_have_time_and_memory(name: str):
    job = documents(name)[-1]["spec"]
    assert job.get("runPolicy", job)["backoffLimit"] == 0
    for template in [job["template"]] if "template" in job else [r["template"] for r in _replicas(job)]:
        pod = template["spec"]
        assert pod["terminationGracePeriodSeconds"] > 60
        (memory,) = [volume["name"] for volume in pod["volumes"] if volume.get("emptyDir", {}).get("medium")]
        assert {"name": memory, "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]
    restarts = (
        {job["template"]["spec"]["restartPolicy"]}
        if "template" in job
        else {r["restartPolicy"] for r in _replicas(job)}
    )
    assert restarts == {"Never"}


def _replicas(job: dict[str, Any]) -> list[dict[str, Any]]:
    return list(job["pytorchReplicaSpecs"].values())


@pytest.mark.parametrize("name", ["indexed-job.yaml", "pytorchjob.yaml"])
def test_the_token_is_in_no_manifest(name: str):
    text = (ANYWHERE / name).read_text()
    pods = (
        pods_of_job(documents(name)[-1], SECRETS)
        if "indexed" in name
        else pods_of_pytorch_job(*documents(name), SECRETS)
    )
    assert "from-literal=token=…" in text
    assert all(SECRETS["token"] in [*pod.env.values(), *pod.files.values()] for pod in pods)


def test_the_pods_of_an_indexed_job_join_one_run():
    joins = [_join(pod) for pod in pods_of_job(documents("indexed-job.yaml")[-1], SECRETS)]
    assert {(join.key, join.is_lasting, join.scheduler) for join in joins} == {
        (f"run {JOB_UID}", True, "Kubernetes job trainer")
    }
    assert [(join.process, join.processes, join.world_size) for join in joins] == [(0, 2, 2), (1, 2, 2)]


def test_the_pods_of_a_pytorch_job_join_one_run():
    joins = [_join(pod) for pod in pods_of_pytorch_job(*documents("pytorchjob.yaml"), SECRETS)]
    assert {(join.key, join.scheduler) for join in joins} == {("kubernetes trainer", "PyTorchJob trainer")}
    assert [(join.process, join.processes, join.world_size) for join in joins] == [(0, 2, 2), (1, 2, 2)]


def _join(pod: Pod) -> Join:
    """How the command behind `rankzero watch … --` joins, also where a shell starts it."""
    words = pod.argv if pod.argv[0] != "sh" else pod.argv[-1].split()
    watch, command = words[: words.index("--")], words[words.index("--") + 1 :]
    key = watch[watch.index("--run") + 1] if "--run" in watch else None
    return joined_by(pod.env, command, key, "node-7")


def test_skypilot_and_dstack_know_every_field():
    assert set(yaml.safe_load((ANYWHERE / "skypilot.yaml").read_text())) <= SKYPILOT
    task = yaml.safe_load((ANYWHERE / "trainer.dstack.yml").read_text())
    assert set(task) <= DSTACK and task["type"] == "task"


@pytest.mark.parametrize("name", ["sbatch.sh", "mpirun.sh"])
def test_the_shell_scripts_are_bash(name: str):
    subprocess.run(["bash", "-n", ANYWHERE / name], check=True)
    assert (ANYWHERE / name).stat().st_mode & 0o111


def test_each_file_is_on_the_page_that_describes_it():
    page = (ANYWHERE.parents[1] / "docs/ANYWHERE.md").read_text()
    assert [path.name for path in ANYWHERE.iterdir() if path.name not in page] == []
