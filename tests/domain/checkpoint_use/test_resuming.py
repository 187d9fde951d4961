"""A resume says before it begins what differs, what its checkpoint lacks, and what cannot work."""

from __future__ import annotations

import pytest

from domain.checkpoint_use.resuming import ResumeChange, ResumePlan, SavedState, resume_plan
from domain.checkpoints.contents import KINDS, CheckpointContents, Kind, kinds_by_rank, kinds_of_file

WHOLE = CheckpointContents(kinds=list(KINDS))


def plan(
    contents: CheckpointContents | None = WHOLE,
    *changes: ResumeChange,
    precision: str = "fp32",
    worlds: tuple[int, int] = (2, 2),
) -> ResumePlan:
    return resume_plan(SavedState("work/last.pt", 40, 1, contents), changes, precision, worlds)


def test_a_checkpoint_with_everything_lacks_nothing() -> None:
    it = plan()
    assert (it.possible, it.why, it.lacks, it.differs, it.is_read) == (True, None, [], [], True)
    assert (it.checkpoint, it.step, it.attempt) == ("work/last.pt", 40, 1)


def test_what_was_not_read_is_not_said_to_be_missing() -> None:
    it = plan(None)
    assert (it.is_read, it.holds, it.lacks, it.possible) == (False, [], [], True)


@pytest.mark.parametrize(("precision", "lacks"), [("fp16", ["optimizer", "scaler"]), ("bf16", ["optimizer"])])
def test_missing_kinds_have_consequences_and_only_fp16_needs_a_scaler(precision: str, lacks: list[Kind]) -> None:
    kinds: list[Kind] = ["model", "scheduler", "rng", "sampler", "step"]
    it = plan(CheckpointContents(kinds=kinds), precision=precision)
    assert it.lacks == lacks and set(it.consequences) == set(lacks)
    assert "averages" in it.consequences["optimizer"] and it.possible


def test_contents_of_an_imported_archive_may_be_anything() -> None:
    assert CheckpointContents.of_stored({"kinds": ["model"]}) == CheckpointContents(kinds=["model"])
    assert CheckpointContents.of_stored(None) is None and CheckpointContents.of_stored({"kinds": ["x"]}) is None


def test_a_part_without_a_model_is_nothing_to_resume_from() -> None:
    it = plan(CheckpointContents(kinds=["optimizer"]))
    assert not it.possible and it.why is not None and "holds no model" in it.why


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        (
            CheckpointContents(kinds=["model", "optimizer"], by_rank=["optimizer"], layout="DeepSpeed checkpoint"),
            "DeepSpeed ZeRO loads its optimizer",
        ),
        (CheckpointContents(kinds=["model", "optimizer"], layout="DeepSpeed checkpoint"), None),
        (CheckpointContents(kinds=["model", "optimizer"], by_rank=["model", "optimizer"]), "(model and optimizer)"),
        (CheckpointContents(kinds=["model", "optimizer"], layout="distributed checkpoint"), None),
        (CheckpointContents(kinds=["model", "optimizer", "rng"], by_rank=["rng"]), None),
    ],
    ids=["deepspeed zero", "deepspeed stage 0", "files of ranks", "dcp", "random states"],
)
def test_another_number_of_ranks_is_refused_where_it_cannot_work(contents: CheckpointContents, why: str | None) -> None:
    it = plan(contents, ResumeChange("world_size", "World size", 2, 4), worlds=(2, 4))
    assert it.possible == (why is None)
    assert why is None or (it.why is not None and why in it.why)
    assert plan(contents).possible
    (differing,) = it.differs
    assert (differing.then, differing.now) == (2, 4) and "divided" in differing.means


def test_changes_that_no_training_notices_are_left_out() -> None:
    changes = [ResumeChange("priority", "Priority", 0, 5), ResumeChange("package.rich", "Package rich", "13", "14")]
    assert plan(WHOLE, *changes).differs == []


@pytest.mark.parametrize(
    ("change", "means"),
    [
        (ResumeChange("scaled_lr", "Learning rate after scaling", 0.1, 0.2), "brings back"),
        (ResumeChange("global_batch_size", "Global batch", 32, 64), "schedule"),
        (ResumeChange("interpreter.torch", "torch", "2.10.0+cu126", "2.9.1"), "older"),
        (ResumeChange("interpreter.torch", "torch", "2.9.1", "2.10.0"), "newer"),
        (ResumeChange("package.accelerate", "Package accelerate", "1.0", "1.1"), "accelerate"),
        (ResumeChange("stage.data", "Data data", "/a", "/b"), "position"),
        (ResumeChange("args.--width", "Argument --width", ["8"], ["16"]), "script"),
    ],
    ids=lambda value: value.field if isinstance(value, ResumeChange) else "",
)
def test_each_change_is_told_with_what_it_means(change: ResumeChange, means: str) -> None:
    (differing,) = plan(WHOLE, change).differs
    assert differing.field == change.field and means in differing.means


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("optimizer.pt", {"optimizer"}),
        ("scheduler.pt", {"scheduler"}),
        ("scaler.pt", {"scaler"}),
        ("rng_state_0.pth", {"rng"}),
        ("random_states_1.pkl", {"rng"}),
        ("sampler.bin", {"sampler"}),
        ("trainer_state.json", {"step"}),
        ("training_args.bin", set()),
        ("model-00001-of-00002.safetensors", {"model"}),
        ("mp_rank_00_model_states.pt", {"model"}),
        ("zero_pp_rank_1_mp_rank_00_optim_states.pt", {"optimizer"}),
        ("pytorch_model_fsdp_0/__0_0.distcp", {"model"}),
        ("optimizer_0/__1_0.distcp", {"optimizer"}),
        ("config.json", set()),
    ],
)
def test_names_of_files_tell_their_kinds(path: str, kinds: set[Kind]) -> None:
    assert kinds_of_file(path) == kinds


def test_a_kind_is_by_rank_where_several_ranks_have_a_file_of_it() -> None:
    names = ["rng_state_0.pth", "rng_state_1.pth", "mp_rank_00_model_states.pt", "optimizer.pt"]
    names += [f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)]
    assert kinds_by_rank({name: kinds_of_file(name) for name in names}) == {"rng", "optimizer"}
