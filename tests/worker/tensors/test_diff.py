"""`diff` of two checkpoints: relative change and cosine against numpy's, by tensor and by layer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.worker.tensors.opened_tensors import OpenedTensors, Progress
from worker.tensors.rankzero_tensors import diff as diff_program
from worker.tensors.rankzero_tensors.diff import diff
from worker.tensors.rankzero_tensors.figures import values as value_blocks


def compared(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    document = diff(OpenedTensors(a), OpenedTensors(b), Progress())
    json.dumps(document, allow_nan=False)
    return document


def row_of(a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
    (row,) = compared({"w": a}, {"w": b})["tensors"]
    return row


def expected(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return {
        "relative": np.linalg.norm(b - a) / np.linalg.norm(a), "cosine": float(np.vdot(a, b).real) / lengths,
        "largest": np.abs(b - a).max(),
    }  # fmt: skip


@pytest.mark.parametrize(("one", "other"), [("float32", "float32"), ("float32", "bfloat16"), ("int32", "float16")])
def test_the_figures_are_numpys(one: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = torch.manual_seed(7)
    a = (torch.randn(9, 13, generator=made) * 20).to(getattr(torch, one))
    b = (torch.randn(9, 13, generator=made) * 20).to(getattr(torch, other))
    monkeypatch.setattr(value_blocks, "BLOCK_VALUES", 16)
    row = row_of(a, b)
    figures = expected(*(tensor.to(torch.float64).numpy().reshape(-1) for tensor in (a, b)))
    assert {name: row[name] for name in figures} == pytest.approx(figures, rel=1e-12)
    assert row["unchanged"] == float((a.double() == b.double()).double().mean())


def test_a_layer_is_one_vector_of_all_its_tensors() -> None:
    made = torch.manual_seed(9)
    names = ["layers.0.q.weight", "layers.0.q.bias", "layers.1.q.weight", "head.weight"]
    a = {name: torch.randn(6, generator=made) for name in names}
    b = {name: tensor + 0.1 * torch.randn(6, generator=made) for name, tensor in a.items()}
    document = compared(a, b)
    rows = {row["layer"]: row for row in document["layers"]}
    assert list(rows) == ["layers.0", "layers.1", "head"]
    first = [torch.cat([side[name] for name in names[:2]]).double().numpy() for side in (a, b)]
    figures = expected(*first)
    assert {name: rows["layers.0"][name] for name in figures} == pytest.approx(figures, rel=1e-12)
    assert (rows["layers.0"]["tensors"], rows["layers.0"]["values"]) == (2, 12)
    whole = expected(*(torch.cat([*side.values()]).double().numpy() for side in (a, b)))
    assert {name: document["totals"][name] for name in whole} == pytest.approx(whole, rel=1e-12)


def test_equal_tensors_have_changed_by_nothing() -> None:
    row = row_of(torch.tensor([1.0, math.nan, 3.0]), torch.tensor([1.0, math.nan, 3.0]))
    assert (row["relative"], row["largest"], row["unchanged"], row["not_finite"]) == (0.0, 0.0, 1.0, 1)
    assert row["cosine"] == pytest.approx(1.0) and row["cosine"] <= 1.0


def test_opposite_tensors_have_the_cosine_minus_one() -> None:
    row = row_of(torch.tensor([1.0, -2.0]), torch.tensor([-1.0, 2.0]))
    assert (row["relative"], row["unchanged"]) == (2.0, 0.0) and row["cosine"] == pytest.approx(-1.0)


def test_a_change_from_zero_has_no_ratio() -> None:
    from_zero, still_zero = row_of(torch.zeros(3), torch.ones(3)), row_of(torch.zeros(3), torch.zeros(3))
    assert (from_zero["relative"], from_zero["cosine"], from_zero["largest"]) == (None, None, 1.0)
    assert (still_zero["relative"], still_zero["cosine"]) == (0.0, None)


def test_places_that_are_not_finite_are_counted_and_left_out() -> None:
    row = row_of(torch.tensor([1.0, math.inf, 2.0]), torch.tensor([2.0, 1.0, math.nan]))
    assert (row["relative"], row["largest"], row["not_finite"], row["unchanged"]) == (1.0, 1.0, 2, 0.0)


def test_complex_tensors_are_compared_with_complex_and_real_ones() -> None:
    a, b = torch.tensor([3 + 4j, 1j]), torch.tensor([3 + 4j, 2j])
    row = row_of(a, b)
    figures = expected(a.numpy(), b.numpy())
    assert {name: row[name] for name in figures} == pytest.approx(figures, rel=1e-6)
    assert row_of(torch.tensor([3.0]), torch.tensor([3 + 0j]))["relative"] == 0.0


@pytest.mark.parametrize("tensor", [torch.zeros(0), torch.tensor(True)])
def test_empty_and_bool_tensors_are_compared(tensor: torch.Tensor) -> None:
    row = row_of(tensor, tensor)
    assert (row["relative"], row["unchanged"]) == (0.0, 1.0)


def test_other_shapes_and_dtypes_and_lone_tensors_are_listed() -> None:
    a = {"<i>": torch.ones(2), "shape": torch.ones(2), "dtype": torch.ones(2), "same": torch.ones(1)}
    b = {"shape": torch.ones(3), "dtype": torch.ones(2, dtype=torch.float16), "same": torch.ones(1), "b": torch.ones(1)}
    document = compared(a, b)
    assert document["only_a"] == [{"name": "<i>", "shape": [2], "dtype": "float32"}]
    assert [row["name"] for row in document["only_b"]] == ["b"]
    different = {row["name"]: (row["a"]["shape"], row["b"]["dtype"]) for row in document["different"]}
    assert different == {"shape": ([2], "float32"), "dtype": ([2], "float16")}
    assert [row["name"] for row in document["tensors"]] == ["dtype", "same"]


def test_files_of_two_formats_are_compared_by_plain_names(tmp_path: Path) -> None:
    torch.save({"module.w": torch.ones(2)}, tmp_path / "a.pt")
    save_file({"w": torch.full((2,), 1.5)}, tmp_path / "b.safetensors")
    document = diff_program.run([str(tmp_path / "a.pt"), str(tmp_path / "b.safetensors")], Progress())
    assert document["formats"] == ["torch", "safetensors"]
    assert [(row["name"], row["relative"]) for row in document["tensors"]] == [("w", 0.5)]
    assert document["notes"][0].startswith("A: ")


def test_nothing_in_common_is_an_answer_too() -> None:
    document = compared({"a": torch.ones(1)}, {"b": torch.ones(1)})
    assert document["layers"] == document["tensors"] == []
    assert (document["totals"]["tensors"], document["totals"]["relative"]) == (0, 0.0)


def test_a_second_name_of_a_tensor_adds_nothing() -> None:
    tensors = {"embed.weight": torch.ones(2), "head.weight": torch.ones(2)}
    tied = {"head.weight": "embed.weight"}
    document = diff(OpenedTensors(tensors, tied), OpenedTensors(tensors, tied), Progress())
    assert [row["name"] for row in document["tensors"]] == ["embed.weight"]
    assert document["only_a"] == document["different"] == []


def test_of_many_tensors_the_most_changed_are_kept_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    a = {f"layers.{number}.w": torch.ones(1) for number in range(40)}
    b = {name: tensor * (1 + number / 100) for number, (name, tensor) in enumerate(a.items())}
    b["layers.2.w"] = torch.tensor([math.inf])
    monkeypatch.setattr(diff_program, "MOST_BYTES", diff_program.MOST_BYTES | {"tensors": 1000})
    document = compared(a, b)
    kept = [row["name"] for row in document["tensors"]]
    number = len(kept)
    assert 3 <= number < 20 and kept == ["layers.2.w", *(f"layers.{at}.w" for at in range(41 - number, 40))]
    assert document["left_out"] == {"layers": 0, "tensors": 40 - number, "only_a": 0, "only_b": 0, "different": 0}
    assert document["totals"]["tensors"] == 40
    assert len(document["layers"]) == 40


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no packed floats")
def test_packed_values_are_named_and_not_compared() -> None:
    packed = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    document = compared({"w": packed, "v": torch.ones(1)}, {"w": packed, "v": torch.ones(1)})
    assert [row["name"] for row in document["tensors"]] == ["v"]
    assert document["notes"][-1].endswith("1 tensor, such as w.")
