"""The main job in a real browser: launch from the form, watch, reload, stop, resume, take a checkpoint home."""

from __future__ import annotations

import hashlib
import re
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from tests.end_to_end.browsers import Chromium
from tests.end_to_end.product import Product, wait_for
from tests.end_to_end.run_page import state, step

PATIENCE_MS = 180_000
PRINTS = """
import time
for i in range(100_000):
    print(f"<{i * 10}> now loss: {2 / (1 + i)} in {40 + i % 7}ms", flush=True)
    time.sleep(0.1)
"""


def test_launch_watch_reload_stop_resume_and_download(product: Product, browser_page: Page, tmp_path: Path):
    page = browser_page
    run_id = launch_from_the_form(page)
    expect(state(page)).to_have_text("running")
    product.wait_step(run_id, 1)
    product.yield_cores(run_id)
    watch_the_loss_grow(page)

    before = step(page)
    page.reload()
    expect(page).to_have_url(re.compile(rf"/run\?id={run_id}$"))
    wait_for(lambda: step(page) > before, "the reloaded page to go on where it was")
    watch_the_loss_grow(page)
    assert product.run(run_id)["attempt"] == 1

    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop the run").click()
    wait_for(lambda: product.run(run_id)["stop_requested_at"], "the stop to be asked for")
    product.wait_state(run_id)
    expect(state(page)).to_have_text("stopped")
    stopped_at = product.run(run_id)["step"]

    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_role("button", name="Resume it").click()
    expect(state(page)).to_have_text("running")
    wait_for(lambda: step(page) > stopped_at, "the resumed run to pass the step where it was stopped")
    product.yield_cores(run_id)
    assert product.run(run_id)["attempt"] == 2

    product.request("POST", f"/api/runs/{run_id}/stop")
    product.wait_state(run_id, "stopped")  # from now on none is overwritten
    newest = next(c for c in product.get(f"/api/runs/{run_id}/checkpoints") if c["complete"])
    file = download_checkpoint(page, newest["id"], tmp_path)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == newest["sha256"]
    loads_into_the_plain_model(file)


@pytest.mark.real
def test_a_pattern_of_printed_lines_is_proposed_previewed_and_drawn(
    product: Product, browser: Chromium, tmp_path: Path
):
    (tmp_path / "prints.py").write_text(PRINTS)
    run_id = product.launch(tmp_path / "prints.py", launcher="python", gpus_per_node=1, stop_grace_s=1)
    with browser.visit(limit_ms=PATIENCE_MS) as visit:
        page = visit.new_page()
        page.goto(f"{product.url}/?token={product.token()}")
        page.goto(f"{product.url}/run?id={run_id}")
        field = page.get_by_role("textbox", name="Pattern of printed lines")
        expect(field).to_have_value("<{*}> now loss: {loss} in {*}")
        expect(page.get_by_text("counted", exact=True).first).to_be_visible()
        use = page.get_by_role("button", name="Use this pattern")
        field.fill("<{step}> now loss: {loss")
        expect(page.get_by_text("The pattern must close each brace")).to_be_visible()
        expect(use).to_be_disabled()
        field.fill("<{step}> now loss: {loss} in {time}")
        expect(page.get_by_text("time_s", exact=True)).to_be_visible()
        use.click()
        expect(page.locator('[aria-label*="printed/loss"] canvas').first).to_be_visible()
        expect(field).to_have_count(0)
    product.request("POST", f"/api/runs/{run_id}/stop")
    product.wait_state(run_id, "stopped")
    points = product.get(f"/api/runs/{run_id}/metrics?source=printed")["printed/loss"]
    assert [point[:2] for point in points[:3]] == [[0, 2.0], [10, 1.0], [20, pytest.approx(2 / 3)]]


def launch_from_the_form(page: Page) -> str:
    """Fill the form, see it follow, be refused, and launch."""
    page.get_by_test_id("stPageLink").get_by_role("link", name="Launch").click()
    launch = page.get_by_role("button", name="Launch", exact=True)
    expect(launch).to_be_enabled()
    page.get_by_label("Processes per node", exact=True).fill("2")
    page.get_by_label("Batch per process", exact=True).fill("0")
    expect(page.get_by_text("must be at least 1, got '0'")).to_be_visible()
    expect(launch).to_be_disabled()
    page.get_by_label("Batch per process", exact=True).fill("8")
    page.get_by_label("Name", exact=True).fill("from the form")
    page.get_by_label("Epochs", exact=True).fill("10000")
    page.get_by_label("Extra arguments", exact=True).fill("--checkpoint-every 20 --seed 1")
    expect(page.get_by_text("8 × 2 ranks × 1 accumulation step = 16 samples a step")).to_be_visible()
    expect(page.get_by_text(re.compile("--nproc-per-node=2.*--checkpoint-every 20"))).to_be_visible()
    launch.click()
    page.wait_for_url(re.compile(r"/run\?id=[a-z0-9]{10}$"))
    return page.url[-10:]


def watch_the_loss_grow(page: Page) -> None:
    """The drawn curve of the training loss changes, and more than once."""
    canvas = page.locator('[aria-label*="train/loss"] canvas').first
    expect(canvas).to_be_visible()
    seen = set()

    def draws_on() -> bool:
        seen.add(canvas.evaluate("canvas => canvas.toDataURL()"))
        return len(seen) >= 4

    reached = step(page)
    wait_for(draws_on, "the loss curve to be drawn anew")
    wait_for(lambda: step(page) > reached, "the step to go up")


def download_checkpoint(page: Page, checkpoint_id: int, folder: Path) -> Path:
    """Click its link in the table of checkpoints, as a person does; the download belongs to the page or to the tab that
    the link opens, whichever is known first."""
    page.get_by_role("tab", name="Checkpoints").click()
    of_it = page.locator(f'[href$="/api/checkpoints/{checkpoint_id}/file"]')
    link = page.get_by_role("link", name="Download", exact=True).and_(of_it)
    expect(link).to_be_visible()
    with page.context.expect_event("page"), page.context.expect_event("download") as download:
        link.click()
    file = folder / "checkpoint.pt"
    download.value.save_as(file)
    return file


def loads_into_the_plain_model(file: Path) -> None:
    """No DDP, no `module.` prefix, no code in the file."""
    content = torch.load(file, weights_only=True)
    sys.path.insert(0, str(files("worker.recipes")))
    try:
        from image_classifier import make_model
    finally:
        sys.path.remove(str(files("worker.recipes")))
    make_model("cnn", "group", channels=1, classes=10).load_state_dict(content["model"], strict=True)
