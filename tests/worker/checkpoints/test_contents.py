"""The kinds of state in a checkpoint are read by names, whatever wrote it; nothing in it runs."""

from __future__ import annotations

import io
import pickle
import pickletools
import random
import sys
import tarfile
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.checkpoints.contents import CheckpointContents
from worker.checkpoints.contents import contents_of
from worker.checkpoints.outlines import outline_of

torch = pytest.importorskip("torch")


def training() -> dict[str, Any]:
    """The state of a small training that has made a step."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def states() -> dict[str, Any]:
    return {name: part.state_dict() for name, part in training().items()}


SCALER = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 1}
RNG = {"python": random.Random(1).getstate(), "torch": torch.random.get_rng_state()}


@pytest.mark.parametrize("old", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (lambda: states()["model"], ["model"]),
        (lambda: states() | {"step": 3}, ["model", "optimizer", "scheduler", "step"]),
        (lambda: {"net": states()["model"], "epoch": 1, "optimizer": None}, ["model", "step"]),
        (lambda: {"G": states()["model"], "a": states()["optimizer"], "b": SCALER}, ["model", "optimizer", "scaler"]),
        (lambda: {"weights": states()["model"], "rng_states": RNG, "sampler": {"at": 3}}, ["model", "rng", "sampler"]),
        (lambda: {"trainer": {"module": states()["model"], "opt": states()["optimizer"]}}, ["model", "optimizer"]),
        (lambda: training()["model"], ["model"]),
        (lambda: {"model": training()["model"], "args": Path("x")}, ["model"]),
        (
            lambda: {
                "model": training()["model"],
                "config": {"optimizer": "adamw", "scheduler": {"warmup": 3}, "random_seed": 1, "dataloader_workers": 8},
            },
            ["model"],
        ),
        (lambda: states()["optimizer"], ["optimizer"]),
        (
            lambda: {
                "state_dict": states()["model"], "global_step": 5, "epoch": 1, "callbacks": {}, "loops": {"fit": 1},
                "optimizer_states": [states()["optimizer"]], "lr_schedulers": [], "MixedPrecision": SCALER,
            },
            ["model", "optimizer", "scaler", "step"],
        ),
        (
            lambda: {
                "module": states()["model"], "optimizer": None, "lr_scheduler": states()["scheduler"],
                "data_sampler": None, "random_ltd": None, "global_steps": 10,
            },
            ["model", "scheduler", "step"],
        ),
    ],
    ids=["weights", "usual", "without optimizer", "by shape", "rng and sampler", "nested", "module", "module and args",
         "model and settings", "optimizer", "lightning", "deepspeed"],
)  # fmt: skip
def test_kinds_in_a_file_of_torch(tmp_path: Path, value: Any, kinds: list[str], old: bool) -> None:
    torch.save(value(), tmp_path / "a.pt", _use_new_zipfile_serialization=not old)
    assert contents_of(tmp_path / "a.pt", "work/a.pt") == CheckpointContents(kinds=kinds)


def archive(folder: Path) -> Path:
    """The folder as it is sent."""
    path = folder.with_suffix(".tar")
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(folder, folder.name)
    return path


def test_kinds_in_a_folder_by_its_files_and_by_what_is_in_them(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_20"
    folder.mkdir()
    for rank in range(2):
        torch.save(states()["model"], folder / f"model_world_size_2_rank_{rank}.pt")
        torch.save(states()["optimizer"], folder / f"optim_world_size_2_rank_{rank}.pt")
        torch.save({"lr_scheduler": states()["scheduler"], "rng": RNG}, folder / f"extra_state_rank_{rank}.pt")
    contents = contents_of(archive(folder), "work/global_step_20.tar", "folder of one save")
    assert contents is not None and contents.layout == "folder of one save"
    assert contents.kinds == contents.by_rank == ["model", "optimizer", "scheduler", "rng"]


def test_kinds_in_a_trainers_folder(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"):
        (folder / name).write_bytes(b"bytes")
    (folder / "trainer_state.json").write_text("{}")
    assert contents_of(archive(folder), "work/checkpoint-5.tar", "HF Trainer checkpoint") == CheckpointContents(
        kinds=["model", "optimizer", "scheduler", "rng", "step"], by_rank=["rng"], layout="HF Trainer checkpoint"
    )


def test_kinds_in_a_distributed_checkpoint(tmp_path: Path) -> None:
    from torch.distributed.checkpoint import FileSystemWriter, save

    model = states()["model"]
    moments = {f"optimizer.state.{name}.exp_avg": torch.zeros_like(tensor) for name, tensor in model.items()}
    whole = {f"model.{name}": tensor for name, tensor in model.items()} | moments | {"epoch": 3}
    with pytest.warns(UserWarning, match="single process"):
        save(whole, storage_writer=FileSystemWriter(tmp_path / "dcp"), no_dist=True)
    contents = contents_of(archive(tmp_path / "dcp"), "work/dcp.tar", "distributed checkpoint")
    assert contents is not None and (contents.kinds, contents.by_rank) == (["model", "optimizer", "step"], [])


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04", b"\x80\x02}q\x00.", b"\x80\x02X\xff\xff\xff\x7f"])
def test_what_cannot_be_read_is_not_said_to_be_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    assert contents_of(tmp_path / "a.pt", "work/a.pt") is None
    assert contents_of(tmp_path / "nothing.pt", "work/nothing.pt") is None


# -- the reader of outlines --------------------------------------------------------------------

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(plain, st.sampled_from([0, 1, 2, 3, 4, 5]))
def test_plain_values_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    assert outline_of(io.BytesIO(pickle.dumps(value, protocol))) == value


OPERATIONS = [operation.code.encode("latin-1") for operation in pickletools.opcodes]
arguments = st.one_of(st.binary(max_size=6), st.sampled_from([b"\x01a", b"os\nsystem\n", b"\xff\xff\xff\xff"]))
programs = st.lists(st.tuples(st.sampled_from(OPERATIONS), arguments), max_size=40).map(
    lambda pairs: b"".join(code + argument for code, argument in pairs)
)


@settings(max_examples=4 * settings.default.max_examples)
@given(st.one_of(st.binary(max_size=200), programs))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    known = set(sys.modules)
    for pickled in (data, b"\x80\x02" + data + b"."):
        with suppress(ValueError):
            outline_of(io.BytesIO(pickled), time.thread_time() + 5)
    assert {name for name in set(sys.modules) - known if not name.startswith("encodings.")} == set()


@pytest.mark.parametrize(
    "data",
    [
        b"}" * 300_000,
        b"(" * 300_000,
        b"]" + b"2" * 300_000,
        b")" + b"\x85" * 300_000,
        b"N" + b"\x94h\x00\x86" * 100_000,
    ],
    ids=["dictionaries", "marks", "copies", "nested", "doubled"],
)
def test_small_bombs_stay_small(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(b"\x80\x04" + data + b".")
    tracemalloc.start()
    try:
        contents_of(tmp_path / "a.pt", "work/a.pt")
        assert tracemalloc.get_traced_memory()[1] < 200 * 1024 * 1024
    finally:
        tracemalloc.stop()
