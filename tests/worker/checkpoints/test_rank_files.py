"""Files that several ranks write, or a model and its optimizer: one checkpoint a save, once all of them are there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.worker.checkpoints.checkpoint_node import Node, content, names, safetensors_bytes, zip_bytes
from worker.checkpoints.rank_files import ranks_of_others
from worker.checkpoints.watching import CheckpointWatch, incomplete_findings


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.watch = CheckpointWatch([node.work], node.dir / "outbox", quiet_s=5, world_size=2)
    return node


def files(*paths: str) -> dict[str, bytes]:
    contents = {"json": b"{}", "safetensors": safetensors_bytes()}
    return {path: contents.get(path.rpartition(".")[2]) or zip_bytes(100) for path in paths}


def both(*paths: str) -> list[str]:
    return [path.replace("RANK", str(rank)) for path in paths for rank in (0, 1)]


FSDP = both(
    *(f"out/global_step_20/actor/{part}_world_size_2_rank_RANK.pt" for part in ("model", "optim", "extra_state"))
)
MEGATRON = both(
    "ck/iter_0000020/mp_rank_00_00RANK/model_optim_rng.pt", "ck/iter_0000020/mp_rank_00_00RANK/distrib_optim.pt"
)
CHECKPOINTS = {
    "ranks in a folder of the step": ([*FSDP, "out/global_step_20/data.pt"], "out/global_step_20.tar", 20),
    "two models of a step": (both("k/step_20/a/net_rank_RANK.pt", "k/step_20/b/net_rank_RANK.pt"), "k/step_20.tar", 20),
    "grid of ranks": ([*MEGATRON], "ck/iter_0000020.tar", 20),
    "flat, with an optimizer of each rank": (
        ["base/model_000020.pt", *both("base/optim_000020_rankRANK.pt"), "base/meta_000020.json"],
        "base/model_000020.tar",
        20,
    ),
    "a file of each rank": (both("ck/ckpt_rankRANK.pt"), "ck.tar", None),
    "a file of each rank and step": (both("step_20_rank_RANK.pt"), "step_20.tar", 20),
    "a folder of each rank": (both("ck/rank_RANK/last.pt"), "ck/last.tar", None),
    "folders of ranks with steps": (both("rankRANK/step_20/model.pt", "rankRANK/step_20/optim.pt"), "step_20.tar", 20),
    "a model and its optimizer": (["m/model_20.pt", "m/optimizer_20.pt", "m/scheduler_20.pt"], "m/model_20.tar", None),
    "a model and its optimizer in a folder": (["last/model.pt", "last/optimizer.pt"], "last.tar", None),
    "a model and its average": (["model000020.pt", "ema_0.99_000020.pt", "opt000020.pt"], "model000020.tar", 20),
    "models trained together": (["g/G_20.pth", "g/D_20.pth"], "g/D_20.tar", None),
    "parts in a folder of the step": (["s/step_20/model.safetensors", "s/step_20/optimizer.pt"], "s/step_20.tar", 20),
}  # fmt: skip


@pytest.mark.parametrize(("paths", "name", "step"), CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_one_save_is_one_checkpoint(node: Node, paths: list[str], name: str, step: int | None) -> None:
    node.write(**files(*paths))
    [taken] = node.settle()
    assert (names([taken]), taken.step) == ([name], step)
    top = name.rpartition("/")[2].removesuffix(".tar")
    assert len(content(taken)) == len(paths) and all(path.startswith(f"{top}/") for path in content(taken))
    assert node.settle() == [] and node.look(final=True) == []


EARLIER = {
    "world size in the name": (FSDP, "actor/model_world_size_2_rank_1.pt of rank 1 is missing"),
    "the save before": (
        ["b/model_000020.pt", *both("b/optim_000020_rankRANK.pt")],
        "optim_000040_rank1.pt of rank 1 is missing",
    ),
    "the grid of the save before": (MEGATRON, "mp_rank_00_001/distrib_optim.pt is missing"),
    "folders of the save before": (both("k/step_20/rank_RANK/model.pt"), "rank_1/model.pt of rank 1 is missing"),
}


@pytest.mark.parametrize(("paths", "missing"), EARLIER.values(), ids=EARLIER)
def test_a_save_without_a_ranks_file_is_not_whole_and_names_it(node: Node, paths: list[str], missing: str) -> None:
    node.write(**files(*paths))
    assert len(node.settle()) == 1
    lost = missing.partition(" ")[0]
    later = [path.replace("20", "40") for path in paths]
    node.write(**files(*(path for path in later if not path.endswith(lost))))
    assert node.settle(70) == [] and node.look(final=True) == []
    assert missing in incomplete_findings(node.watch.incomplete())[0].evidence
    node.write(**files(*(path for path in later if path.endswith(lost))))
    assert len(node.look(final=True)) == 1


def test_while_a_rank_still_writes_nothing_is_taken(node: Node) -> None:
    node.write(**files("b/optim_000020_rank1.pt"))
    assert node.settle(30) == []
    node.write(**files("b/model_000020.pt", "b/optim_000020_rank0.pt"))
    assert names(node.settle()) == ["b/model_000020.tar"]


def test_one_rank_of_several_is_taken_alone_once_nothing_else_comes(node: Node) -> None:
    node.write(**files("b/ckpt_rank0.pt"))
    assert node.settle(30) == []
    assert names(node.look(final=True)) == ["b/ckpt_rank0.pt"]
    assert node.watch.incomplete() == []


def test_ranks_that_never_write_are_not_waited_for_after_a_second_save(node: Node) -> None:
    node.write(**files("b/step_20_rank0.pt", "b/step_40_rank0.pt"))
    assert names(node.settle()) == ["b/step_20.tar", "b/step_40.tar"]


def test_a_mixture_of_two_saves_is_not_whole(node: Node) -> None:
    node.write(**files(*both("b/ckpt_rankRANK.pt")))
    assert len(node.settle()) == 1
    time.sleep(0.02)  # the tick of file times
    node.write(**files("b/ckpt_rank0.pt"))
    assert node.settle(70) == [] and node.look(final=True) == []
    assert "ckpt_rank1.pt in it is still from the previous save" in str(node.watch.incomplete())
    node.write(**files("b/ckpt_rank1.pt"))
    assert len(node.look(final=True)) == 1


def test_what_a_script_leaves_of_a_stored_save_is_no_new_checkpoint(node: Node) -> None:
    paths = [*FSDP, "out/global_step_20/data.pt", "m/model_20.pt", "m/optimizer_20.pt"]
    node.write(**files(*paths))
    assert len(node.settle()) == 2
    for path in (*FSDP, "m/optimizer_20.pt"):
        (node.work / path).unlink()
    assert node.settle() == [] and node.look(final=True) == [] and node.watch.incomplete() == []


@pytest.mark.parametrize(
    "paths",
    [
        ["last.pt", "best.pt"],
        ["epoch_5/best.pt", "epoch_5/last.pt"],
        ["epoch_1/step_10.pt", "epoch_1/step_20.pt"],
        ["best.pt", "optimizer.pt"],
        ["checkpoint_5.pt", "model_5.pt"],
        ["model.pt", "data.pt"],
        ["model_5.pt", "model_6.pt"],
    ],
)
def test_files_that_may_be_whole_by_themselves_stay_apart(node: Node, paths: list[str]) -> None:
    node.write(**files(*paths))
    assert names(node.settle()) == sorted(paths)


def test_the_ranks_of_other_saves_are_those_of_all_but_its_own() -> None:
    saves = {"20": both("m_20_rankRANK.pt"), "40": ["m_40_rank0.pt"], "60": ["n_60_rank0.pt"]}
    assert ranks_of_others(saves) == {"20": {"m_#.pt": {(0,)}}, "40": {"m_#.pt": {(0,), (1,)}}, "60": {}}
