"""From the run page into TensorBoard, with a script whose writer would keep what it logs for two minutes."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect
from websockets.sync.client import connect

from tests.end_to_end.browsers import Chromium
from tests.end_to_end.product import Product, safely, wait_for

pytestmark = pytest.mark.long  # tests/dashboard/tensorboard: the board, its tabs and its sandbox
SCRIPT = Path(__file__).parent / "scripts" / "buffered.py"
POINTS = 6
PATIENCE_MS = 180_000


@pytest.fixture
def page(browser: Chromium) -> Iterator[Page]:
    with browser.visit(limit_ms=PATIENCE_MS) as visit:
        yield visit.new_page()


def test_points_of_tensorboardx_are_shown_within_two_seconds(product: Product) -> None:
    run = product.launch(SCRIPT, gpus_per_node=1, name="buffered")
    product.wait_state(run, "running")
    product.wait_step(run, 1)
    address = product.url.replace("http", "ws") + f"/api/live?run={run}"
    bearer = {"Authorization": f"Bearer {product.token()}"}
    delays_s: list[float] = []
    with connect(address, additional_headers=bearer, proxy=None, open_timeout=60) as watching:
        watching.send(json.dumps({"type": "subscribe", "since": None, "logs": None}))
        while len(delays_s) < POINTS:
            message = json.loads(watching.recv(timeout=60))
            added = message.get("series", {}).get("train/loss", {"reset": True})
            if not added["reset"]:
                delays_s += [time.time() - wall for _, _, wall in added["points"]]
    late_s = delays_s[1:]  # the worker learns with the first that somebody looks
    assert statistics.median(late_s) < 2.0, delays_s


def test_the_run_page_opens_tensorboard_in_a_tab_of_its_own(product: Product, page: Page) -> None:
    run = next(run["id"] for run in product.get("/api/runs") if run["name"] == "buffered")
    page.goto(f"{product.url}/run?id={run}&token={product.token()}")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="TensorBoard").click()
    board = opened.value
    expect(board.locator("scalar-card").first).to_contain_text("train/loss")
    expect(board.locator("image-card img").first).to_be_visible()
    expect(board).to_have_title("buffered")
    assert board.url.startswith(f"{product.url}/tensorboard/{run}/")
    product.request("POST", f"/api/runs/{run}/stop", json={})
    product.wait_state(run, "stopped", "succeeded")


def test_tensorboard_dies_with_a_dashboard_that_is_killed(product: Product) -> None:
    run = next(run["id"] for run in product.get("/api/runs") if run["name"] == "buffered")
    assert product.request("GET", f"/tensorboard/{run}/").status_code == 200
    (board,) = wait_for(lambda: boards(product), "TensorBoard")
    dashboard = product.child("dashboard")
    assert dashboard is not None
    dashboard.kill()
    wait_for(lambda: not safely(board.is_running, False), "TensorBoard to end", 120)
    wait_for(lambda: product.request("GET", f"/tensorboard/{run}/").status_code == 200, "it to be started again")
    left = list((product.data / "tensorboard").iterdir())
    assert len(left) == 1, "what the killed dashboard left is gone"


def boards(product: Product) -> list[psutil.Process]:
    """TensorBoard's processes."""
    folder = str(product.data / "tensorboard") + os.sep
    return [p for p in product.processes() if any(part.startswith(folder) for part in safely(p.cmdline, []))]
