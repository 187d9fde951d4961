"""A study of several global batches in Chromium: a curve and a column for each, and their losses on Compare."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.dashboard.browsed import browsed, opened
from tests.dashboard.seeded_store import Seed
from tests.dashboard.seeded_studies import seed_batches
from tests.dashboard.visits import axe_faults, signed_in
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.long


def test_global_batches_are_curves_and_columns_and_lead_to_their_losses(browser: Chromium, tmp_path) -> None:
    service = opened(tmp_path / "data")
    study_id = seed_batches(Seed(service.store, service.clock()))
    with browsed(service) as dashboard, signed_in(browser, dashboard) as visit:
        page = visit.new_page()
        page.goto(f"{dashboard.url}/scaling?id={study_id}")
        curves = page.locator(".scaling polyline")
        expect(curves).to_have_count(4)
        colours = {curve.evaluate("line => getComputedStyle(line).stroke") for curve in curves.all()}
        assert len(colours) == 4
        batches = page.locator(".scaling .batches table")
        expect(batches.locator("thead .best")).to_have_text(re.compile("1.024"))
        expect(batches.get_by_text("flat", exact=True)).to_have_count(2)
        expect(batches.get_by_text("worse", exact=True)).to_have_count(1)
        expect(page.get_by_text("choose 1 024")).to_be_visible()
        assert axe_faults(page) == []
        page.set_viewport_size({"width": 390, "height": 844})
        expect(batches).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.get_by_role("link", name="Compare their losses by samples").click()
        expect(page.get_by_role("heading", name="Compare 4 runs")).to_be_visible()
        assert visit.errors == []
