"""A profile of two ranks: asked for by a click, shown on the page, and opened in Perfetto without the internet."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.long
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scripts" / "steps.py"


def test_a_profile_is_shown_and_opens_in_perfetto(product: Product, browser_page: Page, tmp_path: Path):
    page = browser_page
    arguments = ["--seconds=600", f"--out={tmp_path / 'rate.json'}"]
    run_id = product.launch(SCRIPT, gpus_per_node=2, args=arguments, stop_grace_s=2)
    wait_for(lambda: product.run(run_id)["step"], "the first step", 180)
    page.goto(f"{product.url}/run?id={run_id}&tab=ranks")
    page.get_by_role("button", name="Record a profile").click()
    expect(page.get_by_role("tab", name="Rank 1", exact=True)).to_be_visible()
    expect(page.get_by_text("Flame graph of the thread that trains").first).to_be_visible()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open in Perfetto").first.click()
    perfetto = opened.value.frame_locator("iframe")
    expect(perfetto.get_by_text(f"rank 0 of run {run_id}").first).to_be_visible()
    product.request("POST", f"/api/runs/{run_id}/stop")
    product.wait_state(run_id)
