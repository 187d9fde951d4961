"""Which checkpoint a run goes on from by itself, and where a person has to name it."""

from __future__ import annotations

import pytest

from domain.recovery import SavedFile, UnclearCheckpoint, choose_checkpoint


def saved(path: str, at: float = 100.0, step: int | None = None, attempt: int = 1) -> SavedFile:
    return SavedFile(path, step, at, attempt=attempt)


def test_no_files_are_no_checkpoint() -> None:
    assert choose_checkpoint([], 2) is None


def test_parts_are_passed_over_for_an_older_checkpoint() -> None:
    whole = saved("work/step_20.tar", 50.0, 20)
    assert choose_checkpoint([saved("work/optimizer.pt"), saved("work/data.pt"), whole], 2) == whole


@pytest.mark.parametrize(
    "paths",
    [
        ["work/optim_world_size_2_rank_1.pt", "work/data.pt"],
        ["work/ckpt_rank0.pt"],
        ["work/rank_0/last.pt", "work/rank_1/last.pt"],
        ["work/best.pt", "work/optimizer.pt"],
        ["work/generator.pt", "work/discriminator.pt"],
    ],
    ids=["only parts", "one rank's file", "folders of ranks", "an optimizer beside", "two models"],
)
def test_what_may_be_one_of_several_files_is_asked_about(paths: list[str]) -> None:
    with pytest.raises(UnclearCheckpoint, match=r"unclear.*rankzero resume RUN --checkpoint NAME") as unclear:
        choose_checkpoint([saved(path) for path in paths], 2)
    assert paths[0] in str(unclear.value)


@pytest.mark.parametrize(
    ("paths", "world_size"),
    [
        (["work/last.pt", "work/best.pt"], 2),
        (["work/ckpt_rank0.pt"], 1),
        (["work/rank_0/last.pt"], 2),
        (["work/model_20.tar", "work/optimizer.pt"], 2),
        (["work/checkpoint.pth.tar", "work/model_best.pth.tar"], 2),
        (["work/generator_20.pt", "work/discriminator_10.pt"], 2),
    ],
)
def test_what_is_whole_by_itself_is_chosen(paths: list[str], world_size: int) -> None:
    files = [saved(path) for path in paths]
    assert choose_checkpoint(files, world_size) == files[0]


def test_an_optimizer_of_another_moment_is_no_part_of_it() -> None:
    newest = saved("work/best.pt", 100.0)
    assert choose_checkpoint([newest, saved("work/optimizer.pt", 20.0)], 2) == newest
    assert choose_checkpoint([newest, saved("work/optimizer.pt", 100.0, attempt=0)], 2) == newest
