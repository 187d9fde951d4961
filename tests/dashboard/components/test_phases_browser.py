"""The strip and the heat map of a step's phases in Chromium: a slow rank stands out, and is shown on a click."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from domain.performance.phases import PHASES, TITLES
from tests.dashboard.components.charts_page import Show, server, show
from tests.dashboard.live_server import FakeServer

pytestmark = pytest.mark.real

__all__ = ["server", "show"]
WALL = 1_760_000_000.0
SPANS = 40
STEP = {
    "copy_s": 0.004,
    "forward_s": 0.02,
    "backward_s": 0.03,
    "optimizer_s": 0.004,
    "checkpoint_s": 0.001,
    "other_s": 0.002,
}


def spans(ranks: int, slow: int | None) -> dict[str, Any]:
    """A run of which one rank waits 60 ms for data from the middle on, and the others for it."""

    def seconds(rank: int, name: str, at: int) -> float:
        is_slow = slow is not None and at > SPANS // 3
        if name == "data_s":
            return 0.06 if is_slow and rank == slow else 0.002
        if name == "exposed_comm_s":
            return 0.062 if is_slow and rank != slow else 0.004
        return STEP[name]

    return {
        "phases": PHASES,
        "titles": TITLES,
        "steps": [10 * at for at in range(SPANS + 1)],
        "walls": [WALL + at for at in range(SPANS + 1)],
        "ranks": [
            {
                "rank": rank,
                "node": f"gpu-{rank // 8}",
                "seconds": {
                    n: [None if at > 37 and rank == 2 else seconds(rank, n, at) for at in range(SPANS)] for n in PHASES
                },
            }
            for rank in range(ranks)
        ],
    }


def colour(canvas: Locator, x: float, y: float) -> list[int]:
    """The red, green, blue and opacity of one point of a canvas."""
    script = "(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data]"
    return list(canvas.evaluate(script, [x, y]))


def test_a_slow_rank_stands_out_and_a_click_shows_its_strip(server: FakeServer, show: Show) -> None:
    server.phases = spans(8, slow=5)
    page = show("phases")
    title, heat = page.locator(".phases h2").first, page.locator("canvas.heat")
    expect(title).to_have_text("Where a step goes: 105 ms, mean of all ranks, steps 0 to 400")
    x = heat.bounding_box()["width"] * 0.8
    assert colour(heat, x, 5.5 * 22)[3] > 2 * colour(heat, x, 2.5 * 22)[3]
    heat.click(position={"x": x, "y": 5.5 * 22})
    expect(title).to_contain_text("rank 5 on gpu-0")
    heat.hover(position={"x": x, "y": 5.5 * 22})
    expect(page.locator(".legend li").first).to_have_text("Waiting for data60 ms48 %")
    page.get_by_role("button", name="All ranks").click()
    page.locator("canvas.strip").hover(position={"x": 1, "y": 1})
    expect(title).to_contain_text("mean of all ranks")


def test_before_two_steps_a_sentence_says_what_is_missing(server: FakeServer, show: Show) -> None:
    page = show("phases", theme="dark")
    expect(page.get_by_text("No rank has been seen making two optimizer steps yet.")).to_be_visible()
    server.phases = spans(1, slow=None)
    expect(page.locator(".phases h2").first).to_contain_text("rank 0, steps 0 to 400")
    expect(page.locator("canvas.heat")).to_be_hidden()
