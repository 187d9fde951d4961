"""Folders that are one checkpoint travel whole, as one archive, or not at all."""

from __future__ import annotations

import json
import os
import shutil
import time
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
from worker.checkpoints.copies import HELD_OPEN
from worker.checkpoints.formats import Completeness
from worker.checkpoints.watching import CheckpointWatch
from worker.node.run_files import remember_existing


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


TRAINER = {
    "out/checkpoint-10/config.json": b"{}",
    "out/checkpoint-10/model.safetensors": safetensors_bytes(),
    "out/checkpoint-10/training_args.bin": zip_bytes(),
    "out/checkpoint-10/optimizer.pt": zip_bytes(),
    "out/checkpoint-10/rng_state_0.pth": zip_bytes(),
    "out/checkpoint-10/trainer_state.json": b'{"global_step": 10}',
}
ACCELERATE = {
    "state_10/model.safetensors": safetensors_bytes(),
    "state_10/optimizer.bin": zip_bytes(),
    "state_10/scheduler.bin": zip_bytes(),
    "state_10/random_states_0.pkl": zip_bytes(),
}
DEEPSPEED = {
    "ds/global_step10/mp_rank_00_model_states.pt": zip_bytes(),
    "ds/global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt": zip_bytes(),
    "ds/latest": b"global_step10",
}
LIGHTNING_FSDP = {
    "checkpoints/epoch=0-step=10.ckpt/__0_0.distcp": b"x" * 5000,
    "checkpoints/epoch=0-step=10.ckpt/.metadata": b"m",
    "checkpoints/epoch=0-step=10.ckpt/meta.pt": zip_bytes(),
}
LIGHTNING_DEEPSPEED = {
    "checkpoints/last.ckpt/checkpoint/mp_rank_00_model_states.pt": zip_bytes(),
    "checkpoints/last.ckpt/checkpoint/zero_pp_rank_0_mp_rank_00_optim_states.pt": zip_bytes(),
    "checkpoints/last.ckpt/latest": b"checkpoint",
}
PRETRAINED = {
    "final/config.json": b"{}",
    "final/model-00001-of-00002.safetensors": safetensors_bytes(),
    "final/model-00002-of-00002.safetensors": safetensors_bytes(),
    "final/model.safetensors.index.json": index_of(
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    ),
    "final/tokenizer.json": b"{}",
}
FOLDERS = {
    "trainer": (TRAINER, "out/checkpoint-10.tar", 10),
    "accelerate": (ACCELERATE, "state_10.tar", None),
    "deepspeed": (DEEPSPEED, "ds/global_step10.tar", 10),
    "lightning fsdp": (LIGHTNING_FSDP, "checkpoints/epoch=0-step=10.ckpt.tar", 10),
    "lightning deepspeed": (LIGHTNING_DEEPSPEED, "checkpoints/last.ckpt.tar", None),
    "pretrained": (PRETRAINED, "final.tar", None),
}


@pytest.mark.parametrize(("files", "name", "step"), FOLDERS.values(), ids=FOLDERS)
def test_a_whole_folder_travels_as_one_archive(
    node: Node, files: dict[str, bytes], name: str, step: int | None
) -> None:
    node.write(**files)
    taken = node.settle()
    assert names(taken) == [name]
    assert taken[0].step == step
    folder = name.removesuffix(".tar")
    inside = {path for path in files if path.startswith(f"{folder}/")}
    top = folder.rpartition("/")[2]
    assert content(taken[0]) == {top + path.removeprefix(folder): files[path] for path in inside}
    assert node.settle() == []


@pytest.mark.parametrize("files", [files for files, _, _ in FOLDERS.values()], ids=FOLDERS)
def test_no_part_of_a_folder_is_taken_at_the_end_of_a_killed_run(tmp_path: Path, files: dict[str, bytes]) -> None:
    """Written in the frameworks' own order, and ended before the last file."""
    order = list(files)
    for cut in range(2, len(order)):
        if order[cut - 1 : cut + 1] == ["final/model.safetensors.index.json", "final/tokenizer.json"]:
            continue  # the model is whole without its tokenizer
        if order[cut] == "ds/latest":
            continue  # it may name another folder
        node = Node(tmp_path / str(cut))
        node.write(**{name: files[name] for name in order[:cut]})
        assert names(node.look(final=True)) == [], order[cut - 1]
        assert node.watch.incomplete() != []


@pytest.mark.parametrize("files", [files for files, _, _ in FOLDERS.values()], ids=FOLDERS)
def test_a_member_cut_in_the_middle_keeps_the_folder_back(node: Node, files: dict[str, bytes]) -> None:
    victim = next(name for name in files if name.endswith((".safetensors", ".pt")))
    node.write(**{**files, victim: files[victim][:-5]})
    assert node.settle() == [] and node.look(final=True) == []
    node.write(**{victim: files[victim]})
    if ".metadata" not in str(files):
        assert len(node.look(final=True)) == 1


def test_while_a_folder_is_written_to_nothing_is_taken(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, data in TRAINER.items():
        node.write(**{name: data})
        written = (node.work / name).stat().st_mtime
        monkeypatch.setattr(time, "time", lambda written=written: written)
        assert node.look(2) == []
    assert node.look(2) == []
    node.write(**{"out/checkpoint-10/rng_state_1.pth": zip_bytes()})  # of a slower rank
    assert node.look(4) == []
    [taken] = node.settle()
    assert "checkpoint-10/rng_state_1.pth" in content(taken)


def test_another_ranks_random_state_waits_for_the_first_ranks_files(node: Node) -> None:
    """On a busy machine rank 1 may write long before rank 0: its file alone is no checkpoint."""
    node.write(**{"out/checkpoint-10/rng_state_1.pth": zip_bytes()})
    assert node.settle(20) == []
    node.write(**TRAINER)
    assert names(node.settle()) == ["out/checkpoint-10.tar"]


def test_one_content_always_makes_the_same_archive(tmp_path: Path) -> None:
    sums = []
    for turn, order in enumerate((list(TRAINER), list(reversed(TRAINER)))):
        node = Node(tmp_path / str(turn))
        node.write(**{name: TRAINER[name] for name in order})
        sums += [taken.sha256 for taken in node.look(final=True)]
    assert len(sums) == 2 and len(set(sums)) == 1


def test_an_older_end_mark_does_not_cover_shards_that_are_written_anew(node: Node) -> None:
    node.write(**{"step_5/__0_0.distcp": b"old", "step_5/.metadata": b"m"})
    assert names(node.settle()) == ["step_5.tar"]
    time.sleep(0.02)  # the tick of file times
    node.write(**{"step_5/__0_0.distcp": b"new"})
    assert node.settle() == [] and node.look(final=True) == []
    time.sleep(0.02)
    node.write(**{"step_5/.metadata": b"m"})
    [taken] = node.settle()
    assert content(taken) == {"step_5/.metadata": b"m", "step_5/__0_0.distcp": b"new"}


@pytest.mark.parametrize(("shard_ns", "quiet_s"), [(0, 5), (-1, 1)], ids=["same tick", "older"])
def test_a_shard_as_new_as_the_end_mark_may_be_of_the_next_save(node: Node, shard_ns: int, quiet_s: int) -> None:
    node.write(**{"step_1/__0_0.distcp": b"", "step_1/.metadata": b"m"})
    now_ns = time.time_ns()
    os.utime(node.work / "step_1/.metadata", ns=(now_ns, now_ns))
    os.utime(node.work / "step_1/__0_0.distcp", ns=(now_ns + shard_ns, now_ns + shard_ns))
    assert node.look() == []
    assert [bool(node.look()) for _ in range(quiet_s)] == [False] * (quiet_s - 1) + [True]


def deepspeed(*tags: str, ranks: int = 2) -> dict[str, bytes]:
    """The files of several tags, without `latest`."""
    model = {f"ds/{tag}/mp_rank_00_model_states.pt": zip_bytes() for tag in tags}
    parts = [f"ds/{tag}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for tag in tags for rank in range(ranks)]
    return model | {name: zip_bytes() for name in parts}


@pytest.fixture
def two(node: Node) -> Node:
    """A node of an attempt with two ranks."""
    node.watch = CheckpointWatch([node.work], node.dir / "outbox", quiet_s=5, world_size=2)
    return node


@pytest.mark.parametrize(
    "tags",
    [("last", "best"), ("epoch1", "epoch2"), ("epoch=1-val_loss=0.312", "keep-1-of-3-loss0.31"), ("global_step10",)],
)
@pytest.mark.parametrize("latest", [b"best", b"global_step5", None])
def test_deepspeeds_folders_are_whole_by_their_own_files(
    two: Node, tags: tuple[str, ...], latest: bytes | None
) -> None:
    """`latest` names the folder that was saved last, which may be another, and `save_latest=False` writes none."""
    two.write(**deepspeed(*tags), **({"ds/latest": latest} if latest else {}))
    assert names(two.settle()) == sorted(f"ds/{tag}.tar" for tag in tags)
    assert two.look(final=True) == [] and two.watch.incomplete() == []


def test_deepspeeds_folder_waits_for_each_ranks_part_of_the_optimizer(two: Node) -> None:
    two.write(**deepspeed("best", ranks=1))
    assert two.settle() == [] and two.look(final=True) == []
    [left] = two.watch.incomplete()
    assert left.missing == "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt is missing"
    two.write(**deepspeed("best"))
    assert names(two.look(final=True)) == ["ds/best.tar"]


def test_deepspeeds_folder_without_an_optimizer_in_parts_is_whole(two: Node) -> None:
    two.write(**deepspeed("epoch1", ranks=0))
    assert names(two.settle()) == ["ds/epoch1.tar"]


def test_deepspeeds_folder_without_the_parts_that_others_have_is_not_whole(two: Node) -> None:
    two.write(**deepspeed("epoch1"), **deepspeed("epoch2", ranks=0))
    assert names(two.settle()) == ["ds/epoch1.tar"] and two.look(final=True) == []
    assert "which other folders have" in two.watch.incomplete()[0].missing


def test_fewer_parts_than_ranks_are_whole_once_latest_names_the_folder(two: Node) -> None:
    """A model in parallel parts has fewer."""
    two.write(**deepspeed("step5", ranks=1), **{"ds/latest": b"step5"})
    assert names(two.settle()) == ["ds/step5.tar"]


def test_a_staging_folder_is_not_looked_into(node: Node) -> None:
    staged = {name.replace("checkpoint-10", "tmp-checkpoint-10"): data for name, data in TRAINER.items()}
    node.write(**staged)
    assert node.settle() == []
    (node.work / "out/tmp-checkpoint-10").rename(node.work / "out/checkpoint-10")
    assert names(node.settle()) == ["out/checkpoint-10.tar"]


def test_an_output_folder_is_taken_without_what_else_lies_in_it(node: Node) -> None:
    node.write(
        **TRAINER,
        **{
            "out/config.json": b"{}",
            "out/model.safetensors": safetensors_bytes(),
            "out/train.log": b"grows",
            "out/all_results.json": b"{}",
            "out/best.pt": zip_bytes(),
            "out/runs/events.out.tfevents.1": b"x",
        },
    )
    taken = node.settle()
    assert names(taken) == ["out.tar", "out/best.pt", "out/checkpoint-10.tar"]
    [model] = [one for one in taken if one.name == "work/out.tar"]
    assert set(content(model)) == {"out/config.json", "out/model.safetensors"}
    node.write(**{"out/train.log": b"grows on", "out/all_results.json": b"{...}"})
    assert node.settle() == []


def test_the_working_directory_itself_is_no_folder(node: Node) -> None:
    node.write(**{"config.json": b"{}", "model.safetensors": safetensors_bytes()})
    assert names(node.settle()) == ["model.safetensors"]


def test_a_folder_of_the_users_own_making_is_taken_file_by_file(node: Node) -> None:
    node.write(**{"checkpoint-5/weights.pt": zip_bytes(), "run.ckpt/step_1.pt": zip_bytes(), ".metadata": b""})
    assert names(node.settle()) == ["checkpoint-5/weights.pt", "run.ckpt/step_1.pt"]


def test_checkpoint_older_than_the_start_is_not_taken(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(**PRETRAINED, **{"old/__0_0.distcp": b"x", "old/.metadata": b"m"})
    existing = json.loads(json.dumps(remember_existing(node.work)))
    node.watch = CheckpointWatch([node.work], node.dir / "outbox", quiet_s=5, ignore=existing)
    assert node.settle() == []
    node.write(**{"final/model-00001-of-00002.safetensors": safetensors_bytes(20)})
    assert names(node.settle()) == ["final.tar"]


def test_links_in_a_folder_are_left_out(node: Node, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    node.write(**TRAINER)
    (node.work / "out/checkpoint-10/link.txt").symlink_to(tmp_path / "secret")
    (node.work / "out/checkpoint-10/folder").symlink_to(tmp_path)
    [taken] = node.settle()
    assert len(content(taken)) == len(TRAINER)


def test_a_restarted_worker_takes_no_folder_twice(node: Node) -> None:
    node.write(**TRAINER)
    [taken] = node.settle()
    node.watch = CheckpointWatch([node.work], node.dir / "outbox", quiet_s=5)
    assert node.watch.pending() == [taken]
    assert node.settle() == []


# -- changed or deleted while it is copied -------------------------------------------------------


def between_pieces(monkeypatch: pytest.MonkeyPatch, act: object, at_piece: int = 3) -> None:
    """Calls `act` when that many pieces of 1000 bytes were copied."""
    monkeypatch.setattr("worker.checkpoints.copies._PIECE_BYTES", 1000)
    copy_piece, pieces = os.copy_file_range, []

    def slow_copy(*arguments: int) -> int:
        pieces.append(arguments)
        if len(pieces) == at_piece:
            act()  # type: ignore[operator]
        return copy_piece(*arguments)

    monkeypatch.setattr(os, "copy_file_range", slow_copy)


def test_a_folder_deleted_while_it_is_copied_is_still_taken_whole(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.write(**TRAINER)
    between_pieces(monkeypatch, lambda: shutil.rmtree(node.work / "out"))
    [taken] = node.settle()
    assert len(content(taken)) == len(TRAINER)
    assert not (node.work / "out").exists()


@pytest.mark.parametrize("victim", [list(TRAINER)[1], list(TRAINER)[-1]])
def test_a_folder_rewritten_while_it_is_copied_is_not_taken(
    node: Node, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    node.write(**TRAINER)
    between_pieces(monkeypatch, lambda: node.write(**{victim: bytes(len(TRAINER[victim]))}))
    assert node.settle(6) == []
    assert [path.name for path in (node.dir / "outbox").iterdir()] == []


def test_a_folder_deleted_before_it_is_copied_is_no_trouble(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.write(**TRAINER)
    monkeypatch.setattr(
        "worker.checkpoints.folders.Folder.completeness",
        lambda folder: shutil.rmtree(folder.path) or Completeness.COMPLETE,
    )
    assert node.settle() == []
    assert node.watch.notice is None


def test_a_folder_of_very_many_files_is_copied_too(node: Node) -> None:
    many = {f"step_9/__{rank}_0.distcp": b"%d" % rank for rank in range(HELD_OPEN + 50)}
    node.write(**many, **{"step_9/.metadata": b"m"})
    [taken] = node.settle()
    assert len(content(taken)) == HELD_OPEN + 51


# -- written by torch itself -------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_a_real_distributed_checkpoint_comes_back_through_archive_and_unpacking(node: Node, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp

    from worker.launch.unpack import unpack

    state = {"model": {"w": torch.arange(12.0).reshape(3, 4)}, "step": 7}
    dcp.save(state, checkpoint_id=node.work / "ckpt" / "step_7", no_dist=True)
    [taken] = node.settle()
    assert (taken.name, taken.step) == ("work/ckpt/step_7.tar", 7)
    folder = unpack(taken.path, tmp_path / "resume/step_7", max_bytes=taken.size_bytes)
    loaded = {"model": {"w": torch.zeros(3, 4)}, "step": 0}
    dcp.load(loaded, checkpoint_id=folder, no_dist=True)
    assert loaded["step"] == 7 and torch.equal(loaded["model"]["w"], state["model"]["w"])
