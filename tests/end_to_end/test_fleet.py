"""From hosts with nothing but sshd to the first step of a DDP run in the environment of its lock, one host offline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.end_to_end.hosts import why_not
from tests.end_to_end.ssh_hosts import SshHosts, nodes_of, why_no_sshd, write_index
from tests.packages import write_made_wheel

pytestmark = pytest.mark.long
LOCKED = "1.1"
SCRIPT = """
import idna, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
print("trained with idna", idna.__version__, "on rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """What a worker needs, a torch that the hosts have at /home/site, and a package in another version than here."""
    folder = write_index(tmp_path / "wheels")
    write_made_wheel(folder, "torch", torch_version(), {"torch.pth": "/home/site\n"})
    write_made_wheel(folder, "idna", LOCKED, {"idna/__init__.py": f"__version__ = {LOCKED!r}\n"})
    return folder


@pytest.fixture
def hosts(tmp_path: Path, wheels: Path) -> Iterator[SshHosts]:
    if reason := why_not() or why_no_sshd():
        pytest.skip(reason)
    cluster = SshHosts(4, tmp_path)
    try:
        cluster.start()
        cluster.serve_index(wheels)
        for host in cluster.hosts[1:]:
            cluster.give_torch(host)
        yield cluster
    finally:
        cluster.clean_up()


def torch_version() -> str:
    return metadata.version("torch").partition("+")[0]


def test_bare_hosts_train_in_the_environment_of_a_lock(hosts: SshHosts, wheels: Path, tmp_path: Path) -> None:
    assert metadata.version("idna") != LOCKED
    settings = hosts[3].home / "home/.config/uv/uv.toml"
    settings.write_text(settings.read_text().replace("9000", "9999"))  # nobody answers there: it is offline
    code, done, errors = hosts.add("host[1-3]", env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)})
    assert (code, [host["state"] for host in done]) == (0, ["joined"] * 3), (done, errors)
    assert nodes_of(hosts) == ["host1", "host2", "host3"]

    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    (project / "requirements.txt").write_text(f"torch=={torch_version()}\nidna=={LOCKED}\n")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    options = ["--environment", "lock", "--python", f"/home/base/bin/{version}", "--nodes", "3", "--gpus-per-node", "1"]
    code, launched, errors = hosts.document("launch", str(project / "train.py"), *options, "--wait")
    assert launched, errors
    run_id = launched["id"]
    history = [line["text"] for line in hosts.get(f"/api/runs/{run_id}/history")]
    assert code == 0, (errors, history, hosts.run(run_id)["message"])
    for rank in range(3):
        log = hosts.request("GET", f"/api/runs/{run_id}/logs?rank={rank}").text
        assert f"trained with idna {LOCKED} on rank {rank} of 3" in log
    environment = hosts.run(run_id)["environment"]
    assert (environment["kind"], environment["state"]) == ("requirements.txt", "ready")
    assert sum("has the environment" in text for text in history) == 3
    brought = hosts.data / "wheels" / "nodes"
    assert {path.name for path in brought.glob("*/*")} == {
        f"idna-{LOCKED}-py3-none-any.whl", f"torch-{torch_version()}-py3-none-any.whl",
    }  # fmt: skip
    phases = {phase["node"] for phase in hosts.get(f"/api/runs/{run_id}/timeline") if phase["phase"] == "environment"}
    assert phases == {"host1", "host2", "host3"}
