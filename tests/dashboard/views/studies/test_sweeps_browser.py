"""The page of a sweep in Chromium: its table sorts, and stays where it is while trials train."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from db.attempts import attempt_queries
from domain.messages import PointBatch
from tests.dashboard.browsed import browsed, opened
from tests.dashboard.seeded_store import Seed
from tests.dashboard.seeded_sweeps import NODE, seed_sweep
from tests.dashboard.visits import axe_faults, signed_in
from tests.db import task_streams
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.long


def test_trials_are_sorted_and_the_focus_stays_while_they_train(browser: Chromium, tmp_path) -> None:
    service = opened(tmp_path / "data")
    seed = Seed(service.store, service.clock())
    sweep_id = seed_sweep(seed)
    with browsed(service) as dashboard, signed_in(browser, dashboard) as visit:
        page = visit.new_page()
        page.goto(f"{dashboard.url}/sweeps?id={sweep_id}")
        rows = page.locator(".sweep tbody tr")
        expect(rows).to_have_count(14)  # the dashboard launches the last one itself
        by_metric = page.get_by_role("button", name="Sort by val/loss")
        by_metric.click()
        expect(rows.first).to_have_class("best")
        expect(page.get_by_role("columnheader", name="val/loss")).to_have_attribute("aria-sort", "ascending")
        expect(rows.nth(12).locator("td").nth(4)).to_have_text("–")  # the trial that failed
        by_metric.press("Enter")
        expect(page.get_by_role("columnheader", name="val/loss")).to_have_attribute("aria-sort", "descending")
        expect(by_metric).to_be_focused()

        label = list(seed.runs)[-1]  # trains
        point = PointBatch(path="events", generation=0, start=9, end=19, series={"val/loss": [(120, 0.01, seed.now)]})
        fence = attempt_queries.attempts(seed.store, seed.runs[label])[-1].fence
        task_streams.points_arrived(seed.store, seed.node_ids[NODE], fence, 0, point)
        expect(rows.nth(11).locator("td").nth(4)).to_have_text("0.01")  # the best one is the last with a value
        expect(by_metric).to_be_focused()
        assert axe_faults(page) == []

        page.get_by_role("link", name="Compare trials").click()
        expect(page).to_have_url(re.compile(rf"compare\?runs=.*{seed.runs[label]}"))
        expect(page.get_by_role("heading", name="Compare 14 runs")).to_be_visible()
        assert visit.errors == []


def test_sweep_without_a_point_says_so_as_long_as_it_has_none(browser: Chromium, tmp_path) -> None:
    service = opened(tmp_path / "data")
    sweep_id = seed_sweep(Seed(service.store, service.clock()))
    empty = {
        "metric": "val/loss", "state": "running", "early_stop": "none", "best": None, "trials": [], "hidden": 0,
        "curves": [], "units": [], "scales": {}, "importance": None,
    }  # fmt: skip
    with browsed(service) as dashboard, signed_in(browser, dashboard) as visit:
        page = visit.new_page()
        page.route("**/curves", lambda route: route.fulfill(json=empty))
        page.goto(f"{dashboard.url}/sweeps?id={sweep_id}")
        expect(page.get_by_text("No trial has logged val/loss yet.")).to_be_visible()
        for _ in range(2):
            with page.expect_response("**/curves"):
                pass
        expect(page.get_by_text("No trial has logged val/loss yet.")).to_be_visible(timeout=1000)
