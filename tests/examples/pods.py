"""The pods that a manifest of examples/anywhere makes, as Kubernetes and the training operator start their containers.

No cluster is here: what a kubelet and a controller do with a manifest is played, and nothing else of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ANYWHERE = Path(__file__).parents[2] / "examples/anywhere"
JOB_UID = "0b6f8a52-6a6e-4f0c-9a3c-0d1d6f7f2c11"
JOB_NAME = "batch.kubernetes.io/job-name"
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"


@dataclass(frozen=True)
class Pod:
    """What its container starts with."""

    argv: list[str]
    env: dict[str, str]
    files: dict[str, str]
    """Of mounted secrets."""


def documents(name: str) -> list[dict[str, Any]]:
    """Return the documents of one manifest."""
    return list(yaml.safe_load_all((ANYWHERE / name).read_text()))


def pods_of_job(job: dict[str, Any], secrets: dict[str, str]) -> list[Pod]:
    """Return the pods of an Indexed Job, by their index."""
    name, template = job["metadata"]["name"], job["spec"]["template"]
    labels = {JOB_NAME: name, CONTROLLER_UID: JOB_UID}
    return [
        _pod(template, labels, secrets, {"HOSTNAME": f"{name}-{index}", "JOB_COMPLETION_INDEX": str(index)})
        for index in range(job["spec"]["completions"])
    ]


def pods_of_pytorch_job(job: dict[str, Any], secrets: dict[str, str]) -> list[Pod]:
    """Return the pods of a PyTorchJob by their number, the master's first, with the variables of operator 1.8."""
    name, spec = job["metadata"]["name"], job["spec"]
    roles = [
        (role, index) for role in ("Master", "Worker") for index in range(spec["pytorchReplicaSpecs"][role]["replicas"])
    ]
    address = {"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": "23456"}
    shared = address | {f"PET_{variable}": value for variable, value in address.items()}
    shared["WORLD_SIZE"] = str(len(roles) * int(spec["nprocPerNode"]))
    shared |= {"PET_NNODES": str(len(roles)), "PET_NPROC_PER_NODE": spec["nprocPerNode"]}
    pods = []
    for rank, (role, index) in enumerate(roles):
        own = {"HOSTNAME": f"{name}-{role.lower()}-{index}", "RANK": str(rank), "PET_NODE_RANK": str(rank)}
        pods.append(_pod(spec["pytorchReplicaSpecs"][role]["template"], {}, secrets, shared | own))
    return pods


def _pod(template: dict[str, Any], labels: dict[str, str], secrets: dict[str, str], given: dict[str, str]) -> Pod:
    (container,) = template["spec"]["containers"]
    env = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"} | given
    for variable in container["env"]:
        env[variable["name"]] = _value(variable, labels, secrets)
    argv = [_expanded(word, env) for word in [*container["command"], *container.get("args", [])]]
    names = {volume["name"] for volume in template["spec"]["volumes"] if "secret" in volume}
    mounts = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in names]
    return Pod(argv, env, {f"{path}/{key}": value for path in mounts for key, value in secrets.items()})


def _value(variable: dict[str, Any], labels: dict[str, str], secrets: dict[str, str]) -> str:
    if "value" in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    if "secretKeyRef" in source:
        return secrets[source["secretKeyRef"]["key"]]
    label = re.fullmatch(r"metadata\.labels\['(.+)'\]", source["fieldRef"]["fieldPath"])
    assert label, source
    return labels[label[1]]


def _expanded(word: str, env: dict[str, str]) -> str:
    """A kubelet puts variables into a command; what it does not know it leaves as it is."""
    return re.sub(r"\$\(([A-Za-z_][\w.-]*)\)", lambda found: env.get(found[1], found[0]), word)
