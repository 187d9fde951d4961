"""The code a run works with, and where it works."""

from __future__ import annotations

import zipfile

import pytest

from dashboard.snapshots.archive import pack
from dashboard.snapshots.selection import select
from domain.masking.masking import MASK
from domain.messages import Reason
from tests.worker.virtual_node import VirtualNode, checkpoint, events, then


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"target": "/nowhere/train.py"}, "The script /nowhere/train.py does not exist on node n0."),
        ({"target": "/nowhere", "entry": "a.py"}, "The folder /nowhere does not exist on node n0."),
        (
            {"target": "image_classifier", "python": "/nowhere/python"},
            "The interpreter /nowhere/python does not",
        ),
        (
            {"target": "image_classifier", "workdir": "/nowhere"},
            "The working directory /nowhere does not exist",
        ),
        (
            {"target": "image_classifier", "links": {"data": "/nowhere"}},
            "/nowhere, to be linked as data, does not",
        ),
    ],
)
def test_missing_path_on_the_node_gets_a_sentence(node, spec, sentence):
    node.assign(node.assignment(spec.pop("target"), spec=spec))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.SCRIPT_MISSING)
    assert end.message.startswith(sentence)


def kept(node, folder):
    """The hash of a folder's code, as the server keeps it."""
    packed = pack(select(folder), node.folder / f"{folder.name}.tar", 10**9)
    node.server.snapshots[packed.sha256] = packed.path.read_bytes()
    return packed.sha256


def code_of(tmp_path):
    code = tmp_path / "code"
    (code / "data").mkdir(parents=True)
    (code / "data" / ".gitkeep").touch()
    (code / "settings.py").write_text("VALUE = 3\n")
    (code / "events.out.tfevents.1700000000.old").write_text("of another run")
    with zipfile.ZipFile(code / "pretrained.pt", "w") as archive:
        archive.writestr("data", "weights")
    (code / "train.py").write_text(
        "import settings, os\nprint(settings.VALUE, *sorted(os.listdir()), os.path.islink('data'))\n"
    )
    return code


def test_a_run_works_in_its_own_copy_of_the_code_it_was_launched_with(node, tmp_path):
    code = code_of(tmp_path)
    spec = {"entry": "train.py", "links": {"data": "/tmp"}, "snapshot": kept(node, code)}
    (code / "settings.py").write_text("VALUE = 4\n")  # changed after the launch
    node.assign(node.assignment(str(code), spec=spec))
    node.until_settled()
    shown = node.server.text("logs/rank0.out").replace("__pycache__ ", "")
    assert shown == "3 data pretrained.pt settings.py train.py True\n"
    assert node.server.checkpoints == []  # what the code brings along is not the run's own
    assert (tmp_path / "code/data/.gitkeep").exists()


def test_a_second_attempt_finds_the_code_on_the_node(node, tmp_path):
    code = code_of(tmp_path)
    spec = {"entry": "train.py", "snapshot": kept(node, code)}
    node.assign(node.assignment(str(code), spec=spec))
    node.until_settled()
    node.server.snapshots.clear()
    node.assign(node.assignment(str(code), spec=spec, fence=2, attempt=2))
    node.until(lambda: node.server.end(2))
    assert node.server.end(2).state == "succeeded"


def test_code_that_cannot_be_had_fails_the_run_in_a_sentence(node):
    node.assign(node.assignment("/code", spec={"entry": "train.py", "snapshot": "0" * 64}))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.LAUNCH_FAILED)
    assert end.message == "The code (snapshot 000000000000) could not be fetched: there is no such snapshot"


def test_a_run_in_place_shows_only_what_it_made_itself(virtual_node: VirtualNode, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    (place / "events.out.tfevents.1700000000.old").write_text("of another run")
    with zipfile.ZipFile(place / "old.pt", "w") as archive:
        archive.writestr("data", "weights")
    script = virtual_node.script(then(events(), checkpoint("new.pt")))
    virtual_node.assign(virtual_node.assignment(script, spec={"workdir": str(place)}))
    virtual_node.until_settled()
    assert [one["path"] for one in virtual_node.server.checkpoints] == ["workdir/new.pt"]
    assert [name for _, name, _ in virtual_node.server.files if "old" in name] == []
    assert list(virtual_node.server.series) == ["train/loss"]


def test_secrets_stay_on_the_node(node, monkeypatch):
    monkeypatch.setenv("RANKZERO_TOKEN", "join")
    script = node.script("import os\nprint(os.environ.get('RANKZERO_TOKEN'), os.environ['WANDB_API_KEY'])\n")
    node.assign(node.assignment(script, spec={"env": {"WANDB_API_KEY": "hidden"}}))
    node.until_settled()
    assert node.server.text("logs/rank0.out") == "None hidden\n"
    assert node.server.reports[0][1].env["WANDB_API_KEY"] == MASK
    assert (node.dir() / "launch.json").stat().st_mode & 0o077 == 0
