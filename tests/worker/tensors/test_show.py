"""`show` of a checkpoint: every figure against numpy's, and tensors that have none or few."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.worker.tensors.opened_tensors import OpenedTensors, Progress
from worker.tensors.rankzero_tensors import show as show_program
from worker.tensors.rankzero_tensors.figures import values as value_blocks
from worker.tensors.rankzero_tensors.show import show

FLOAT8 = [name for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu") if hasattr(torch, name)]


def shown(**tensors: torch.Tensor) -> dict[str, dict[str, Any]]:
    """The rows by name, of a document that JSON can hold."""
    document = show(OpenedTensors(tensors), Progress())
    json.dumps(document, allow_nan=False)
    return {row["name"]: row for row in document["tensors"]}


def numpys(values: np.ndarray) -> dict[str, float]:
    return {
        "norm": np.linalg.norm(values), "mean": values.mean(), "std": values.std(), "min": values.min(),
        "max": values.max(),
    }  # fmt: skip


def agree(row: dict[str, Any], expected: dict[str, float]) -> None:
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "uint8", "int8", *FLOAT8])
def test_the_figures_are_numpys(dtype: str) -> None:
    made = torch.manual_seed(3)
    tensor = (torch.rand(7, 11, generator=made) * 100).to(getattr(torch, dtype))
    row = shown(w=tensor)["w"]
    agree(row, numpys(tensor.to(torch.float64).numpy().reshape(-1)))
    assert (row["shape"], row["dtype"], row["values"], row["bytes"]) == ([7, 11], dtype, 77, tensor.nbytes)
    assert (row["nan"], row["inf"]) == (0, 0)


def test_blocks_do_not_change_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean is far from zero, where a sum of squares alone would lose the deviation."""
    tensor = torch.randn(1000, generator=torch.manual_seed(5), dtype=torch.float64) + 1e6
    monkeypatch.setattr(value_blocks, "BLOCK_VALUES", 64)
    row = shown(w=tensor)["w"]
    assert row["std"] == pytest.approx(tensor.numpy().std(), rel=1e-9)
    agree({"mean": row["mean"], "norm": row["norm"]}, {"mean": tensor.numpy().mean(), "norm": np.linalg.norm(tensor)})


def test_what_is_not_finite_is_counted_and_the_rest_measured() -> None:
    row = shown(w=torch.tensor([3.0, math.nan, math.inf, -math.inf, 4.0, 0.0]))["w"]
    agree(row, numpys(np.array([3.0, 4.0, 0.0])))
    assert (row["nan"], row["inf"], row["zeros"]) == (1, 2, 1)


@pytest.mark.parametrize("tensor", [torch.zeros(0, 4), torch.full((3,), math.nan)])
def test_without_a_finite_value_no_figure_is_made_up(tensor: torch.Tensor) -> None:
    row = shown(w=tensor)["w"]
    assert {row[name] for name in ("norm", "mean", "std", "min", "max")} == {None}
    assert row["nan"] == tensor.numel()


def test_a_bool_is_0_or_1_and_a_scalar_has_one_value() -> None:
    rows = shown(mask=torch.tensor([True, False, True, True]), steps=torch.tensor(12))
    agree(rows["mask"], {"mean": 0.75, "min": 0.0, "max": 1.0, "norm": math.sqrt(3)})
    assert (rows["steps"]["shape"], rows["steps"]["values"], rows["steps"]["max"]) == ([], 1, 12.0)


def test_complex_values_count_by_their_magnitudes() -> None:
    values = torch.tensor([3 + 4j, 0j, complex(math.nan, 1)])
    row = shown(w=values)["w"]
    assert (row["norm"], row["max"], row["nan"], row["zeros"]) == (5.0, 5.0, 1, 1)


def test_a_figure_beyond_float64_is_unknown() -> None:
    row = shown(w=torch.full((4,), 1e300, dtype=torch.float64))["w"]
    assert row["norm"] is None and row["max"] == 1e300


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no packed floats")
def test_packed_values_are_listed_without_figures() -> None:
    rows = shown(packed=torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), w=torch.ones(2))
    assert (rows["packed"]["norm"], rows["packed"]["nan"], rows["packed"]["bytes"]) == (None, None, 4)
    assert rows["w"]["mean"] == 1.0


def test_the_totals_count_a_tensor_of_two_names_once() -> None:
    embedding = torch.full((2, 2), 2.0)
    tensors = {"embed.weight": embedding, "head.weight": embedding, "steps": torch.tensor(3)}
    document = show(OpenedTensors(tensors, {"head.weight": "embed.weight"}), Progress())
    totals = document["totals"]
    assert (totals["tensors"], totals["values"], totals["bytes"]) == (2, 5, 24)
    assert totals["norm"] == pytest.approx(5.0)
    assert document["tensors"][1]["tied"] == "embed.weight"
    assert document["dtypes"] == [
        {"dtype": "float32", "tensors": 1, "values": 4, "bytes": 16},
        {"dtype": "int64", "tensors": 1, "values": 1, "bytes": 8},
    ]
    assert document["notes"] == ["A note."]


def test_a_document_of_bounded_size_keeps_the_broken_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {f"layers.{number}.weight": torch.ones(1) for number in range(50)}
    tensors["layers.40.weight"] = torch.tensor([math.nan])
    monkeypatch.setattr(show_program, "MOST_BYTES", 1000)
    document = show(OpenedTensors(tensors), Progress())
    names = [row["name"] for row in document["tensors"]]
    assert len(names) > 2
    assert names == [*(f"layers.{number}.weight" for number in range(len(names) - 1)), "layers.40.weight"]
    assert len(json.dumps(document["tensors"])) <= 1000 and document["left_out"] == 50 - len(names)
    assert document["totals"]["tensors"] == 50


def test_a_saved_file_is_shown_by_its_plain_names(tmp_path: Path) -> None:
    torch.save({"model": {"module.w": torch.ones(2, 3)}, "step": 7}, tmp_path / "last.pt")
    document = show_program.run([str(tmp_path / "last.pt")], Progress())
    assert [(row["name"], row["shape"], row["mean"]) for row in document["tensors"]] == [("w", [2, 3], 1.0)]
    assert document["format"] == "torch" and document["notes"]


def test_names_are_text_that_every_encoder_takes() -> None:
    rows = shown(**{"<b>\x00\ud800": torch.ones(1)})
    assert list(rows) == ["<b>\x00?"]


def test_progress_is_of_the_bytes_read() -> None:
    progress = Progress()
    show(OpenedTensors({"a": torch.ones(2), "b": torch.ones(3)}), progress)
    assert progress.reported == [(0, 20, "reading a"), (8, 20, "reading b")]
