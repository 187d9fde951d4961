"""A W&B script that nobody changed, launched with the command line: a browser draws its curves while it trains."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from playwright.sync_api import Page, expect

from tests.end_to_end.launches import launched, rankzero
from tests.end_to_end.product import Product, wait_for
from tests.end_to_end.run_page import state, step
from tests.examples.trained import EXAMPLES

pytestmark = pytest.mark.long


def test_a_wandb_script_is_drawn_while_it_trains(product: Product, browser_page: Page):
    pytest.importorskip("wandb")
    page = browser_page
    arguments = ("launch", "wandb_ddp.py", "--gpus-per-node", "2", "--json")
    run_id = launched(rankzero(product, *arguments, cwd=EXAMPLES))["id"]
    with slowed_down(product, run_id):
        page.goto(f"{product.url}/run?id={run_id}")
        canvas = page.locator('[aria-label*="train.loss"] canvas').first
        expect(canvas).to_be_visible()
        expect(state(page)).to_have_text("running")
        reached, seen = step(page), set[str]()

        def draws_on() -> bool:
            seen.add(canvas.evaluate("canvas => canvas.toDataURL()"))
            return len(seen) >= 3

        wait_for(draws_on, "the loss to be drawn anew")
        wait_for(lambda: step(page) > reached, "the step to go up")
        assert product.run(run_id)["state"] == "running"
    expect(state(page)).to_have_text("succeeded")
    expect(page.locator('[aria-label*="val/loss"] canvas').first).to_be_visible()
    expect(page.get_by_text("W&B is offline here: no API key.")).to_be_visible()
    page.get_by_role("tab", name="Spec").click()
    expect(page.get_by_text("model.inputs")).to_be_visible()


@contextmanager
def slowed_down(product: Product, run_id: str) -> Iterator[None]:
    """Let rank 1 train a tenth of the time: the example would have trained before anybody looks."""
    is_over = threading.Event()

    def stop_and_go() -> None:
        wait_for(lambda: any(product.data.glob(f"runs/{run_id}/**/work/wandb/*")), "W&B to start")
        rank = product.ranks(run_id)[1]
        try:
            while not is_over.is_set():
                rank.send_signal(signal.SIGSTOP)
                is_over.wait(0.2)
                rank.send_signal(signal.SIGCONT)
                is_over.wait(0.02)
        except psutil.NoSuchProcess:
            return

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
