"""Draws two pictures from the results: how many times better or worse we are, and how costs grow with size.

python draw.py RESULTS PICTURES

Needs matplotlib, which MLflow brings along.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from matplotlib import pyplot, rcParams

pyplot.switch_backend("svg")
rcParams |= {"svg.hashsalt": "rankzero", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
rcParams |= {"axes.spines.top": False, "axes.spines.right": False}

MET, MISSED = "#2a78d6", "#c0392b"
UNDATED = {"Date": None}


def draw_ratios(documents: list[dict], path: Path) -> None:
    """A dot for each row, with its quartiles: to the right of 1 it is as good as wanted, or better."""
    rows = [figure for document in documents for figure in document["figures"]][::-1]
    figure, axes = pyplot.subplots(figsize=(9, 0.21 * len(rows) + 0.9), layout="constrained")
    for place, row in enumerate(rows):
        low, median, high = sorted(reached(row, row["ratio"][name]) for name in ("low", "median", "high"))
        colour = MET if row["met"] else MISSED
        axes.plot([low, high], [place, place], color=colour, linewidth=1.5)
        axes.plot([median], [place], "o", color=colour, markersize=4)
    names = [f"{row['what']}, against {row['peer']}" for row in rows]
    axes.set(xscale="log", yticks=range(len(rows)), yticklabels=names, ylim=(-0.7, len(rows) - 0.3))
    axes.axvline(1, color="#888888", linewidth=0.8)
    axes.set_xlabel("times the target, medians with quartiles; from 1 on it is met")
    axes.tick_params(axis="y", length=0, labelsize=7.5)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    figure.savefig(path, metadata=UNDATED)


def reached(row: dict, ratio: float) -> float:
    """How many times better than its target a ratio is."""
    ratio = max(ratio, 1e-3)  # a logarithm has no zero
    return ratio / row["target"] if row["better"] == "more" else row["target"] / ratio


def draw_growth(documents: list[dict], path: Path) -> None:
    """A line for each cost, by its size; both axes are logarithmic, so that the slope is the exponent."""
    costs = [cost for document in documents for cost in document["costs"]]
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for cost in costs:
        label = f"{cost['what']}, by {cost['size_name']}: {cost['exponent']:.2f}"
        sizes = [int(size) for size in cost["seconds"]]
        axes.plot(sizes, [1000 * s for s in cost["seconds"].values()], "o-", markersize=4, label=label)
    axes.set(xscale="log", yscale="log", xlabel="size", ylabel="milliseconds")
    axes.grid(color="#e4e4e4", linewidth=0.6)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, title="cost and its exponent")
    figure.savefig(path, metadata=UNDATED)


if __name__ == "__main__":
    results, pictures = map(Path, sys.argv[1:])
    documents = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    draw_ratios(documents, pictures / "benchmark-ratios.svg")
    draw_growth(documents, pictures / "benchmark-growth.svg")
