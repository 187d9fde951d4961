"""Checkpoints in several files without a framework's folder: one checkpoint, once all of its shards are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.checkpoints.checkpoint_node import (
    Node,
    content,
    index_of,
    names,
    safetensors_bytes,
    zip_bytes,
)
from worker.checkpoints.folders import is_shard
from worker.checkpoints.watching import incomplete_findings

INDEX = "out/plain-step-40/model.safetensors.index.json"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def shards(count: int, folder: str = "out/plain-step-40") -> dict[str, bytes]:
    return {
        f"{folder}/model-{number:05d}-of-{count:05d}.safetensors": safetensors_bytes(10 * count)
        for number in range(1, count + 1)
    }


def index(count: int) -> dict[str, bytes]:
    return {INDEX: index_of(*(name.rpartition("/")[2] for name in shards(count)))}


def test_an_index_before_its_shards_is_one_checkpoint_once_the_last_is_there(node: Node) -> None:
    node.write(**index(4))
    assert node.settle() == []
    for name, data in list(shards(4).items())[:-1]:
        node.write(**{name: data})
        assert node.settle() == []
    node.write(**shards(4))
    [taken] = node.settle()
    assert (taken.name, taken.step, len(content(taken))) == ("work/out/plain-step-40.tar", 40, 5)


def test_shards_of_an_earlier_save_are_left_out(node: Node) -> None:
    node.write(**index(4), **shards(4))
    assert len(node.settle()) == 1
    node.write(**index(2))
    assert node.settle() == []
    node.write(**shards(2))
    [taken] = node.settle()
    assert content(taken).keys() == {name.removeprefix("out/") for name in [*index(2), *shards(2)]}


def test_an_interrupted_save_says_which_shards_are_missing(node: Node) -> None:
    name, data = next(iter(shards(3).items()))
    node.write(**index(3), **{name: data})
    assert node.look(final=True) == []
    [finding] = incomplete_findings(node.watch.incomplete())
    assert (
        "2 of its 3 shards are missing: model-00002-of-00003.safetensors, model-00003-of-00003.safetensors, which "
        "model.safetensors.index.json lists" in finding.evidence
    )


@pytest.mark.parametrize(
    "name",
    ["pytorch_model-{}-of-00002.bin", "my.net_v2-{}-of-00002.pt", "shard-{}-of-00002.pth", "{}-of-2.ckpt"],
)
def test_shards_without_an_index_are_whole_with_the_last_number(node: Node, name: str) -> None:
    first, second = (f"run/step_30/{name.format(number)}" for number in ("00001", "00002"))
    node.write(**{first: zip_bytes()})
    assert node.settle() == [] and node.look(final=True) == []
    assert "1 is missing" in incomplete_findings(node.watch.incomplete())[0].evidence
    node.write(**{second: zip_bytes()})
    [taken] = node.settle()
    assert (taken.name, taken.step, len(content(taken))) == ("work/run/step_30.tar", 30, 2)


def test_shards_in_the_working_directory_are_one_checkpoint_beside_others(node: Node) -> None:
    node.write(**shards(2, "."), **{"last.pt": zip_bytes()})
    assert sorted(names(node.settle())) == ["last.pt", "work.tar"]


def test_data_in_shards_is_no_checkpoint(node: Node) -> None:
    node.write(**{f"data/train-0000{number}-of-00002.bin": b"\1\2\3" * 999 for number in (1, 2)})
    assert node.settle() == [] and node.look(final=True) == []
    assert node.watch.incomplete() == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a-1-of-2.pt", True), ("epoch-3-of-10.pt", False), ("a-1-of-2.txt", False), ("a-1-of-2.pt.tmp", False)],
)
def test_shard_is_recognised_by_its_name(name: str, expected: bool) -> None:
    assert is_shard(name) is expected
