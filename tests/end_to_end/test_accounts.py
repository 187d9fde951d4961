"""Trainings under other accounts of this machine: what they can do, and what they cannot reach."""

from __future__ import annotations

import json
import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests import other_accounts as accounts
from tests.end_to_end.product import Product, contents_below, wait_for
from tests.other_accounts import OtherAccount
from tests.packages import write_made_wheel, write_torch_wheel

SCRIPTS = Path(__file__).parent / "scripts"
SECRET = "hf_AbCdEfGhIjKlMn"
pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(accounts.obstacle()), reason=accounts.obstacle())]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that all may enter, with a Python that all may execute."""
    with accounts.open_folder() as folder:
        accounts.make_python(folder / "python")
        shutil.copytree(SCRIPTS, folder / "scripts")  # beside their project, its own Python would train them
        yield folder


@pytest.fixture
def two_accounts() -> Iterator[tuple[OtherAccount, OtherAccount]]:
    """Two accounts of this machine."""
    with ExitStack() as stack:
        yield stack.enter_context(accounts.account()), stack.enter_context(accounts.account())


def product_of(place: Path, account: OtherAccount) -> Product:
    """`rankzero up`, whose owner trains under this account."""
    product = Product(place / "data", slots=4, env={"RANKZERO_RUN_AS": f"owner={account.name}"})
    product.python = str(place / "python/bin/python")
    return product


def test_a_training_reaches_its_own_files_and_no_others(
    place: Path, two_accounts: tuple[OtherAccount, OtherAccount]
) -> None:
    first, second = two_accounts
    product = product_of(place, first)
    try:
        product.start()
        product.request("PUT", "/api/secrets/HF_TOKEN", json={"value": SECRET}).raise_for_status()
        trained = product.launch(place / "scripts/resumes.py", args=["release"], gpus_per_node=2, secrets=["HF_TOKEN"])
        product.wait_step(trained, 10)
        assert {rank.environ()["HF_TOKEN"] for rank in product.ranks(trained).values()} == {SECRET}
        assert {uid_of(rank) for rank in product.ranks(trained).values()} == {first.uid}
        assert product.process is not None
        product.process.send_signal(signal.SIGKILL)  # the training goes on, and the next worker finds it
        product.process.wait()
        product = product_of(place, second)
        product.start()
        product.wait_step(trained, 30)
        spies_on(product, trained, first, second)
        stops_and_resumes(product, trained, first, second)
        assert product.stop() == 0, product.tail()
    finally:
        product.clean_up()


@pytest.mark.long
def test_an_environment_is_built_by_the_account_for_itself(
    place: Path, two_accounts: tuple[OtherAccount, OtherAccount]
) -> None:
    account, wheels, project = two_accounts[0], place / "wheels", place / "project"
    wheels.mkdir()
    project.mkdir()
    write_torch_wheel(wheels)
    write_made_wheel(wheels, "locked", "1.0", {"locked/__init__.py": "VERSION = '1.0'\n"})
    (project / "requirements.txt").write_text(f"torch=={version('torch').partition('+')[0]}\nlocked==1.0\n")
    (project / "train.py").write_text("import locked, sys, torch\nprint(locked.VERSION, sys.prefix)\n")
    product = Product(place / "data-of-builds", env={"RANKZERO_RUN_AS": account.name})
    product.python = str(place / "python/bin/python")
    try:
        product.start()
        env = {"PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1"}
        run_id = product.launch(project, entry="train.py", gpus_per_node=1, env=env)
        assert product.wait_state(run_id)["state"] == "succeeded", product.run(run_id)
        envs = product.data / f"accounts/{account.name}/envs"
        log = product.request("GET", f"/api/runs/{run_id}/logs?rank=0").text
        assert log.startswith(f"1.0 {envs}/")
        assert {path.stat().st_uid for path in envs.iterdir()} == {account.uid}
        assert stat.S_IMODE(envs.parent.stat().st_mode) == 0o700
        assert product.stop() == 0, product.tail()
    finally:
        product.clean_up()


def spies_on(product: Product, other: str, first: OtherAccount, second: OtherAccount) -> None:
    """A run under the second account finds every door closed."""
    data = product.data
    attempt = data / f"accounts/{first.name}/runs/{other}/attempts/1/node0"
    assert attempt.stat().st_uid == first.uid
    worker, dashboard = product.child("worker"), product.child("dashboard")
    assert worker is not None and dashboard is not None
    read = [data / name for name in ("node/node.json", "token", "join-token", "rankzero.db", "node/accounts.json")]
    read += [attempt / name for name in ("launch.json", "assignment.json", "logs/rank0.out", "work/resumes.py")]
    read += [Path(f"/proc/{pid}/{name}") for pid in (worker.pid, dashboard.pid) for name in ("environ", "maps")]
    listed = [f"{folder}/" for folder in (data, data / "accounts", data / "node", attempt, attempt / "work")]
    written = [data / "wheels/forged", data / "node/snapshots/forged", data / "accounts/forged"]
    written += [attempt / "work/forged", data / f"accounts/{first.name}/envs/forged"]
    paths = [*map(str, read), *listed, *(f"+{path}" for path in written), f"+/proc/{worker.pid}/oom_score_adj"]
    run_id = product.launch(data.parent / "scripts/spies.py", args=paths, gpus_per_node=2)
    assert product.wait_state(run_id)["state"] == "succeeded", product.run(run_id)
    work = data / f"accounts/{second.name}/runs/{run_id}/attempts/1/node0/work"
    outcomes: dict[str, Any] = json.loads((work / "outcomes.json").read_text())
    assert outcomes == dict.fromkeys(paths, "PermissionError")
    assert (work / "uid.txt").read_text() == str(second.uid)
    seen = (work / "seen.txt").read_text(errors="replace")
    assert "RANKZERO_RUN_ID" in seen
    tokens = [json.loads((data / "node/node.json").read_text())["token"]]
    tokens += [SECRET] + [(data / name).read_text().strip() for name in ("token", "join-token", "metrics-token")]
    assert not [token for token in tokens if token in seen]


def stops_and_resumes(product: Product, run_id: str, first: OtherAccount, second: OtherAccount) -> None:
    """A run is stopped with its grace, and goes on from its checkpoint, under the account that counts now."""
    product.request("POST", f"/api/runs/{run_id}/stop").raise_for_status()
    assert product.wait_state(run_id)["state"] == "stopped"
    saved = product.get(f"/api/runs/{run_id}/checkpoints")
    assert saved and all(checkpoint["complete"] for checkpoint in saved)
    left = product.data / f"accounts/{first.name}/runs/{run_id}"
    assert (left / "attempts/1/node0/logs/rank0.out").read_text().startswith(f"logged in with {'*' * len(SECRET)}\n")
    assert [path for path, content in contents_below(left) if SECRET.encode() in content] == []
    product.request("POST", f"/api/runs/{run_id}/resume").raise_for_status()
    product.wait_state(run_id, "running")
    wait_for(lambda: len(product.ranks(run_id)) == 2, "the ranks of the second attempt")
    assert {uid_of(rank) for rank in product.ranks(run_id).values()} == {second.uid}
    product.wait_step(run_id, int(saved[-1]["step"]) + 20)
    folder = product.data / f"accounts/{second.name}/runs/{run_id}/attempts/2/node0"
    assert list((folder / "resume").iterdir())


def uid_of(process: Any) -> int:
    """The account of a process."""
    return int(process.uids().real)
