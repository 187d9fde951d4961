"""Code on its way to a run: kept at launch, the same on every node, and there again when the source is gone."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli import main
from tests.end_to_end.launches import launched, rankzero
from tests.end_to_end.product import WAIT_S, Product, wait_for

pytestmark = pytest.mark.real

ONE = {"strategy": "single", "gpus_per_node": 1}


def logs(product: Product, run_id: str) -> str:
    """What rank 0 printed."""
    return product.request("GET", f"/api/runs/{run_id}/logs").text


def end(product: Product, run_id: str) -> str:
    """What a run printed that succeeded."""
    run = product.wait_state(run_id)
    assert run["state"] == "succeeded", (run["message"], product.tail())
    return logs(product, run_id)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program of two modules."""
    code = tmp_path / "my project"
    (code / "package").mkdir(parents=True)
    (code / "package" / "__init__.py").touch()
    (code / "package" / "values.py").write_text("VALUE = 'as it was'\n")
    (code / "package" / "train.py").write_text("from package.values import VALUE\nprint('module', VALUE)\n")
    (code / "train.py").write_text("from package.values import VALUE\nprint('script', VALUE)\n")
    return code


@pytest.fixture
def checkout(folder: Path) -> Path:
    """The same as a git checkout, with data that git ignores."""
    (folder / ".gitignore").write_text("data/\n")
    (folder / "data").mkdir()
    (folder / "data" / "samples.txt").write_text("many samples")
    (folder / "train.py").write_text("print(open('data/samples.txt').read())\n")
    run_git(folder, "init", "--quiet", "-b", "main")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "--quiet", "-m", "first")
    return folder


def run_git(folder: Path, *arguments: str) -> str:
    """A git command as somebody with a name."""
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_a_folder_keeps_the_code_it_was_launched_with(product: Product, folder: Path) -> None:
    first = product.launch(folder, entry="train.py", **ONE)
    spec = product.run(first)["spec"]
    assert end(product, first) == "script as it was\n"
    (folder / "package" / "values.py").write_text("VALUE = 'changed'\n")
    assert end(product, product.launch(folder, entry="train.py", **ONE)) == "script changed\n"
    assert end(product, product.launch(**spec)) == "script as it was\n"
    shutil.rmtree(folder)
    assert end(product, product.launch(**spec)) == "script as it was\n"
    product.request("POST", f"/api/runs/{first}/resume", json={})
    product.wait_state(first, "succeeded")
    assert logs(product, first) == "script as it was\n" and product.run(first)["attempt"] == 2


def test_the_command_line_sends_code_that_the_dashboard_does_not_look_for(product: Product, checkout: Path) -> None:
    result = rankzero(
        product, "launch", "train.py", "--strategy", "single", "--gpus-per-node", "1",
        "--link", f"data={checkout / 'data'}", "--json", cwd=checkout,
    )  # fmt: skip
    run = launched(result)
    assert end(product, run["id"]) == "many samples\n"
    spec = product.run(run["id"])["spec"]
    assert (spec["target"], spec["entry"]) == (str(checkout / "train.py"), "train.py")
    about = product.get(f"/api/snapshots/{spec['snapshot']}")
    assert about["origin"]["commit"] == run_git(checkout, "rev-parse", "HEAD")
    assert (about["origin"]["branch"], about["origin"]["dirty"]) == ("main", False)


def test_launch_names_files_that_git_ignores(product: Product, checkout: Path) -> None:
    result = rankzero(product, "launch", "train.py", "--strategy", "single", "--json", cwd=checkout)
    assert f"--link data={checkout / 'data'} links it there" in result.stderr
    run = product.wait_state(launched(result)["id"])
    assert run["state"] == "failed" and "data/samples.txt" in run["message"]


def test_a_module_is_started_in_the_snapshot(product: Product, folder: Path) -> None:
    arguments = ("launch", ".", "--module", "package.train", "--gpus-per-node", "2", "--json")
    run = launched(rankzero(product, *arguments, cwd=folder))
    assert end(product, run["id"]) == "module as it was\n"


def test_a_run_in_place_says_that_its_code_is_not_kept(product: Product, folder: Path) -> None:
    arguments = ("launch", "train.py", "--strategy", "single", "--workdir", ".", "--json")
    result = rankzero(product, *arguments, cwd=folder)
    assert "its code is not stored" in result.stderr
    run = launched(result)
    assert end(product, run["id"]) == "script as it was\n"
    assert product.run(run["id"])["spec"]["snapshot"] is None


def test_the_last_run_takes_the_snapshot_along(product: Product, folder: Path) -> None:
    (folder / "train.py").write_text("print('only here')\n")
    first, second = (product.launch(folder, entry="train.py", **ONE) for _ in range(2))
    sha256 = product.run(first)["spec"]["snapshot"]
    for run_id, status in ((first, 200), (second, 404)):
        product.wait_state(run_id)
        assert product.request("DELETE", f"/api/runs/{run_id}?now=true").status_code == 200
        assert product.request("GET", f"/api/snapshots/{sha256}").status_code == status
    assert not list((product.data / "files" / "snapshots").glob(sha256))


def test_bad_code_is_refused_in_a_sentence_and_nothing_is_started(
    product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process: a start of the command line for each would cost half a second."""
    monkeypatch.chdir(tmp_path)
    binary, shell = tmp_path / "binary.py", tmp_path / "train.sh"
    binary.write_bytes(b"\x7fELF\0\0\0")
    shell.write_text("#!/bin/sh\necho no\n")
    (tmp_path / "train.py").touch()
    os.mkfifo(tmp_path / "pipe.py")
    before = len(product.get("/api/runs"))
    for arguments, words in (
        (["binary.py"], "binary.py is not a Python script: it is a binary file."),
        (["train.sh"], "train.sh is not a Python script: its first line names sh."),
        (["pipe.py"], "neither a file nor a folder"),
        ([".", "--entry", "../outside.py"], "lies outside of"),
        ([".", "--entry", "missing.py"], "there is no file 'missing.py'"),
        ([".", "--module", "no.such"], "there is neither no/such.py nor no/such/__main__.py"),
        (["train.py", "--ref", "main"], "ref: only a git address has one"),
        (["file:///etc", "--entry", "a.py"], "a git address with file: is not accepted"),
        (["ext::sh -c id", "--entry", "a.py"], "target: "),
        (["https://me:secret@example.org/a.git", "--entry", "a.py"], "must not hold a user's name"),
        (["https://example.org/a.git", "--entry", "a.py", "--ref=--upload-pack=x"], "cannot be the name"),
    ):
        code = main.run(["launch", *arguments, "--data", str(product.data)])
        out, err = capfd.readouterr()
        assert (code, out) == (1, ""), (arguments, out, err)
        assert words in err and err.count("\n") == 1, (arguments, err)
        assert "secret" not in err
    assert len(product.get("/api/runs")) == before


@pytest.mark.long
def test_a_second_machine_gets_the_same_code_by_its_hash(product: Product, folder: Path, tmp_path: Path) -> None:
    data = product.data.parent / f"{product.data.name}-second"  # a name that the product's clean-up finds
    command = [
        sys.executable,
        "-P",
        "-m",
        "cli.main",
        "worker",
        "--server",
        product.url,
        "--name",
        "second",
    ]
    env = product.env | {"RANKZERO_TOKEN": (product.data / "join-token").read_text().strip()}
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen([*command, "--slots", "1", "--data", str(data)], env=env, stdout=log, stderr=log)
    try:
        wait_for(lambda: len(product.get("/api/nodes")) == 2, "the second node")
        run_id = product.launch(folder, entry="train.py", nodes=2, gpus_per_node=1)
        end(product, run_id)
        sha256 = product.run(run_id)["spec"]["snapshot"]
        copies = [place / "node" / "snapshots" / f"{sha256}.tar" for place in (product.data, data)]
        assert {hashlib.sha256(copy.read_bytes()).hexdigest() for copy in copies} == {sha256}
        other = product.request("GET", f"/api/runs/{run_id}/logs?rank=1").text
        assert other == "script as it was\n"
    finally:
        worker.terminate()
        worker.wait(WAIT_S)
        assert product.request("DELETE", "/api/nodes/second").status_code == 200
