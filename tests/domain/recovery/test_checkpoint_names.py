"""What names of files tell about the ranks, parts and saves of checkpoints."""

from __future__ import annotations

import pytest

from domain.checkpoints.names import is_folder_of_one_save, is_part, of_rank, part_name


@pytest.mark.parametrize(
    ("path", "label", "rank", "world_size"),
    [
        ("actor/model_world_size_4_rank_3.pt", "actor/model.pt", (3,), 4),
        ("optim_000123_rank0.pt", "optim_000123.pt", (0,), None),
        ("mp_rank_00_003/model_optim_rng.pt", "model_optim_rng.pt", (0, 3), None),
        ("tp_rank_01_pp_rank_002/distrib_optim.pt", "distrib_optim.pt", (1, 2), None),
        ("zero_pp_rank_1_mp_rank_00_optim_states.pt", "zero_optim_states.pt", (1, 0), None),
        ("rank_1/last.pt", "last.pt", (1,), None),
        ("rank1of2.pt", "rank.pt", (1,), 2),
        ("franks_model.pt", "franks_model.pt", None, None),
        ("model_7.pt", "model_7.pt", None, None),
    ],
)
def test_rank_and_world_size(path: str, label: str, rank: tuple[int, ...] | None, world_size: int | None) -> None:
    name = part_name(path)
    assert (name.label, name.rank, name.world_size) == (label, rank, world_size)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("optim_world_size_2_rank_1.pt", True),
        ("work/global_step_20/data.pt", True),
        ("optimizer_5.pt", True),
        ("extra_state_rank_0.pt", True),
        ("actor_optim.pt", True),
        ("model_optim_rng.pt", False),
        ("opt125m.pt", False),
        ("train_state.pt", False),
        ("data2vec_best.pt", False),
        ("model_5.pt", False),
        ("last.pt", False),
    ],
)
def test_a_part_is_never_resumed_from_alone(path: str, expected: bool) -> None:
    assert is_part(path) is expected


def test_the_files_of_one_save_have_the_same_numbers() -> None:
    names = ("model000100.pt", "opt000100.pt", "ema_0.9999_000100.pt", "meta_000100.json", "optim_000100_rank1.pt")
    assert {part_name(name).save for name in names} == {"000100"}
    assert part_name("best_rank0.pt").save == "best" != part_name("ckpt_rank0.pt").save


def test_the_same_file_of_another_rank() -> None:
    assert of_rank("actor/optim_world_size_12_rank_03.pt", (11,)) == "actor/optim_world_size_12_rank_11.pt"
    assert of_rank("mp_rank_00_001/x.pt", (1, 0)) == "mp_rank_01_000/x.pt"


@pytest.mark.parametrize("name", ["global_step_20", "iter_0000020", "epoch=3-val_loss=1.2", "00020", "checkpoint-5"])
def test_a_folder_of_one_save_counts_the_training(name: str) -> None:
    assert is_folder_of_one_save(name)


@pytest.mark.parametrize("name", ["run-2", "version_0", "fold_3", "footstep3", "checkpoints", "actor"])
def test_other_folders_may_hold_many(name: str) -> None:
    assert not is_folder_of_one_save(name)
