"""`diff SOURCE_A SOURCE_B`: how far each tensor and layer of B is from A's.

For vectors a and b, of a layer all of its tensors one after the other:

- the relative change is ‖b - a‖ / ‖a‖, the relative error of b as an approximation of a (Golub and Van Loan, *Matrix
  Computations*, section 2.2); null where a is zero and b is not;
- the cosine is a·b / (‖a‖ ‖b‖), which lies between -1 and 1 by the inequality of Cauchy and Schwarz; null where a or b
  is zero.

They are computed from the places where both values are finite; the other places are counted. Sums are accumulated in
float64, block by block; a figure that float64 cannot hold is null.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .figures.layers import layer_of
from .figures.rows import Row, fitting, known, plain
from .figures.values import have_numbers, paired_blocks
from .opening import open_source

if TYPE_CHECKING:
    import torch

    from .reports import ProgressReport
    from .sources import TensorSource


def run(arguments: list[str], report: ProgressReport) -> dict[str, Any]:
    """Compare the checkpoints at two paths. Raises Refused, OSError."""
    a, b = arguments
    with closing(open_source(Path(a))) as source_a, closing(open_source(Path(b))) as source_b:
        return diff(source_a, source_b, report)


def diff(a: TensorSource, b: TensorSource, report: ProgressReport) -> dict[str, Any]:
    """Return the result document. Raises Refused, OSError."""
    changes, notes = _changes(a, b, report)
    by_layer: dict[str, list[Change]] = defaultdict(list)
    for name, change in changes.items():
        by_layer[layer_of(name)].append(change)
    rows = {
        "layers": [{"layer": plain(layer)} | _summed(parts) for layer, parts in by_layer.items()],
        "tensors": [_tensor_row(b, name, change) for name, change in changes.items()],
    } | _unequal(a, b)
    shown = {name: fitting(rows[name], most, _urgency) for name, most in MOST_BYTES.items()}
    return {
        "formats": [a.format, b.format], "totals": _summed(changes.values()), **shown,
        "left_out": {name: len(rows[name]) - len(shown[name]) for name in shown},
        "notes": [*(f"A: {note}" for note in a.notes), *(f"B: {note}" for note in b.notes), *notes],
    }  # fmt: skip


MOST_BYTES = {"layers": 400_000, "tensors": 1_000_000, "only_a": 100_000, "only_b": 100_000, "different": 200_000}
"""Of the rows of each list in the document; the most changed ones come before all others."""


@dataclass
class Change:
    """Sums over the pairs of values seen so far."""

    values: int = 0
    """Pairs; of complex tensors, real and imaginary parts."""
    not_finite: int = 0
    equal: int = 0
    a_squares: float = 0.0
    b_squares: float = 0.0
    distance_squares: float = 0.0
    products: float = 0.0
    largest: float = 0.0

    def add(self, a: torch.Tensor, b: torch.Tensor) -> None:
        """Add a block of float64 values of both."""
        are_finite = a.isfinite() & b.isfinite()
        self.values += a.numel()
        self.equal += int(((a == b) | (a.isnan() & b.isnan())).sum())
        if not are_finite.all():
            self.not_finite += int((~are_finite).sum())
            a, b = a[are_finite], b[are_finite]
        distance = b - a
        self.a_squares += float(a.square().sum())
        self.b_squares += float(b.square().sum())
        self.distance_squares += float(distance.square().sum())
        self.products += float((a * b).sum())
        if distance.numel():
            self.largest = max(self.largest, float(distance.abs().max()))

    def figures(self) -> Row:
        """Return them as JSON has them."""
        return {
            "values": self.values, "relative": self._relative(), "cosine": self._cosine(),
            "largest": known(self.largest), "unchanged": self.equal / self.values if self.values else 1.0,
            "not_finite": self.not_finite,
        }  # fmt: skip

    def _relative(self) -> float | None:
        if self.a_squares == 0:
            return None if self.distance_squares else 0.0
        return known(math.sqrt(self.distance_squares) / math.sqrt(self.a_squares))

    def _cosine(self) -> float | None:
        if not self.a_squares or not self.b_squares:
            return None
        cosine = known(self.products / math.sqrt(self.a_squares) / math.sqrt(self.b_squares))
        return None if cosine is None else max(-1.0, min(1.0, cosine))


def _changes(a: TensorSource, b: TensorSource, report: ProgressReport) -> tuple[dict[str, Change], list[str]]:
    """Measure the tensors that both have in the same shape, in B's order; notes name those that cannot be compared."""
    common = [name for name in b.tensors if _is_compared(a, b, name)]
    total_bytes = sum(a.tensors[name].nbytes + b.tensors[name].nbytes for name in common)
    changes, done_bytes, without = {}, 0, []
    for name in common:
        report.progress(done_bytes, total_bytes, f"comparing {plain(name)}")
        change = _change(a.read(name), b.read(name))
        if change is None:
            without.append(plain(name))
        else:
            changes[name] = change
        done_bytes += a.tensors[name].nbytes + b.tensors[name].nbytes
    return changes, [_not_compared(without)] if without else []


def _is_compared(a: TensorSource, b: TensorSource, name: str) -> bool:
    """Whether both have it in the same shape; a second name of a tensor, tied in both, adds nothing."""
    if name not in a.tensors or (name in a.tied and name in b.tied):
        return False
    return a.tensors[name].shape == b.tensors[name].shape


def _not_compared(names: Sequence[str]) -> str:
    tensors = "1 tensor" if len(names) == 1 else f"{len(names)} tensors"
    return f"Not compared, because torch does not convert this dtype to numbers: {tensors}, such as {names[0]}."


def _change(a: torch.Tensor, b: torch.Tensor) -> Change | None:
    if not (have_numbers(a) and have_numbers(b)):
        return None
    change = Change()
    for pair in paired_blocks(a, b):
        change.add(*pair)
    return change


def _summed(changes: Iterable[Change]) -> Row:
    """Return the figures of several tensors as of one vector."""
    whole, tensors = Change(), 0
    for change in changes:
        tensors += 1
        for name in _SUMS:
            setattr(whole, name, getattr(whole, name) + getattr(change, name))
        whole.largest = max(whole.largest, change.largest)
    return {"tensors": tensors} | whole.figures()


_SUMS = tuple(field.name for field in fields(Change) if field.name != "largest")


def _tensor_row(b: TensorSource, name: str, change: Change) -> Row:
    facts = b.tensors[name]
    row = {"name": plain(name), "layer": plain(layer_of(name)), "shape": list(facts.shape), "dtype": facts.dtype}
    return row | change.figures()


def _unequal(a: TensorSource, b: TensorSource) -> dict[str, list[Row]]:
    """Return the tensors that only one has, and those of another shape or dtype."""
    return {
        "only_a": [_facts(a, name) for name in a.tensors if name not in b.tensors],
        "only_b": [_facts(b, name) for name in b.tensors if name not in a.tensors],
        "different": [
            {"name": plain(name), "a": _facts(a, name), "b": _facts(b, name)}
            for name in b.tensors
            if name in a.tensors and _kind(a, name) != _kind(b, name)
        ],
    }


def _facts(source: TensorSource, name: str) -> Row:
    shape, dtype = _kind(source, name)
    return {"name": plain(name), "shape": list(shape), "dtype": dtype}


def _kind(source: TensorSource, name: str) -> tuple[tuple[int, ...], str]:
    return source.tensors[name].shape, source.tensors[name].dtype


def _urgency(row: Row) -> tuple[bool, float]:
    """Order places that are not finite first, then by the relative change, from zero the largest."""
    relative = row.get("relative", 0.0)
    return bool(row.get("not_finite")), math.inf if relative is None else relative
