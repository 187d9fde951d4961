"""A checkpoint's tensors, and the differences of two, in Chromium: searched, sorted, and drawn by layer."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.components.charts_page import Show, server, show
from tests.dashboard.live_server import FakeServer

pytestmark = pytest.mark.real

__all__ = ["server", "show"]
CHANGE = {"values": 100, "cosine": 0.9, "largest": 0.1, "unchanged": 0.0, "not_finite": 0}


def tensor(name: str, norm: float, nan: int = 0) -> dict[str, Any]:
    return {
        "name": name, "shape": [10, 10], "dtype": "float32", "values": 100, "bytes": 400, "tied": None, "norm": norm,
        "mean": 0.0, "std": 0.1, "min": -1.0, "max": 1.0, "zeros": 0, "nan": nan, "inf": 0,
    }  # fmt: skip


def shown(tensors: list[dict[str, Any]]) -> dict[str, Any]:
    totals = {"tensors": len(tensors), "values": 100 * len(tensors), "bytes": 400, "norm": 1.0, "nan": 0, "inf": 0}
    dtypes = [{"dtype": "float32", "tensors": len(tensors), "values": 100, "bytes": 400}]
    return {
        "kind": "show", "name": "work/last.pt", "other_name": None,
        "result": {"format": "torch", "totals": totals, "dtypes": dtypes, "tensors": tensors, "left_out": 2,
                   "notes": ["Left out: <i>step</i>."]},
    }  # fmt: skip


def compared(changes: dict[str, float | None]) -> dict[str, Any]:
    layers = [CHANGE | {"layer": layer, "tensors": 1, "relative": relative} for layer, relative in changes.items()]
    left_out = dict.fromkeys(("layers", "tensors", "only_a", "only_b", "different"), 0)
    return {
        "kind": "diff", "name": "work/first.pt", "other_name": "work/last.pt",
        "result": {
            "formats": ["torch", "torch"], "totals": CHANGE | {"tensors": len(layers), "relative": 0.1},
            "layers": layers, "tensors": [], "only_a": [], "only_b": [], "different": [], "left_out": left_out,
            "notes": [],
        },
    }  # fmt: skip


def names(page: Page) -> list[str]:
    return page.locator("tbody tr td:first-child").all_text_contents()


def test_tensors_are_searched_and_sorted_and_their_names_are_text(server: FakeServer, show: Show) -> None:
    server.checkpoint_task = shown(
        [tensor("<b>layers.0</b>", 2.0), tensor("layers.1", 3.0, nan=7), tensor("head", 1.0)]
    )
    page = show("tensors")
    expect(page.get_by_role("status")).to_contain_text("Not finite: values of 1 tensor. Left out: <i>step</i>.")
    assert names(page) == ["<b>layers.0</b>", "layers.1", "head"]
    expect(page.locator("tr.broken")).to_contain_text("7 NaN")
    page.get_by_role("button", name="Sort by Norm").click()
    assert names(page) == ["head", "<b>layers.0</b>", "layers.1"]
    page.get_by_role("searchbox").fill("layers")
    expect(page.locator("summary")).to_have_text("Tensors (2 of 5)")
    assert names(page) == ["<b>layers.0</b>", "layers.1"]
    expect(page.get_by_text("2 further rows not reported")).to_be_visible()


def test_of_many_tensors_the_first_are_drawn_until_all_are_asked_for(server: FakeServer, show: Show) -> None:
    server.checkpoint_task = shown([tensor(f"layers.{number}", 1.0) for number in range(320)])
    page = show("tensors")
    expect(page.locator("tbody tr")).to_have_count(300)
    page.get_by_role("button", name="Show 20 more").click()
    expect(page.locator("tbody tr")).to_have_count(320)


def test_each_layer_has_a_column_and_a_point_and_its_row_is_marked_with_them(server: FakeServer, show: Show) -> None:
    server.checkpoint_task = compared({"layers.0": 0.1, "layers.1": 0.4, "head": None})
    page = show("tensors", theme="dark")
    heights = [
        float(h) for h in page.locator("rect.column").evaluate_all("all => all.map(e => e.getAttribute('height'))")
    ]
    assert len(heights) == 2 and heights[1] == pytest.approx(4 * heights[0])
    expect(page.locator("circle.point")).to_have_count(3)
    expect(page.locator("tbody tr").last).to_contain_text("from zero")
    expect(page.get_by_role("status")).to_contain_text("A: work/first.pt, B: work/last.pt.")
    page.locator("rect.reach").nth(1).hover(position={"x": 5, "y": 5})
    expect(page.locator("tr.hovered")).to_contain_text("layers.1")
    expect(page.locator("[data-item='layers.1'].hovered")).to_have_count(3)


def test_what_cannot_be_loaded_is_said(server: FakeServer, show: Show) -> None:
    server.is_down = True
    page = show("tensors")
    expect(page.get_by_role("status")).to_contain_text("The tensors could not be loaded.")
