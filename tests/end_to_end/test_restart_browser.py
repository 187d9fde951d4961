"""The server is restarted under an open launch form in Chromium: one banner of ours, and nothing typed is lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.end_to_end.browsers import Chromium
from tests.end_to_end.product import Product

pytestmark = pytest.mark.long
KEPT = "JSON.parse(sessionStorage.getItem('rankzero.form') ?? '{}')"


def box(page: Page, name: str):
    return page.get_by_role("textbox", name=name, exact=True)


def keeps(page: Page, name: str, value: str) -> None:
    page.wait_for_function(f"([name, value]) => {KEPT}[name] === value", arg=[name, value])


def test_a_filled_form_survives_a_restart_and_a_reload(browser: Chromium, tmp_path: Path) -> None:
    product = Product(tmp_path / "data", has_worker=False)
    try:
        product.start()
        with browser.visit() as visit:
            page = visit.new_page()
            page.goto(f"{product.url}/?token={product.token()}")
            page.goto(f"{product.url}/launch")
            box(page, "Name").fill("keep me")
            box(page, "Learning rate").fill("0.004")
            page.locator(".st-key-launch_how").get_by_text("bf16", exact=True).click()
            page.get_by_text("Advanced: ").click()
            page.get_by_role("textbox", name=re.compile("^Environment")).fill("A=b\nAPI_TOKEN=hush")
            box(page, "Extra arguments").fill("--wandb-key hush")
            keeps(page, "launch_env", "A=b")
            keeps(page, "launch_precision", "bf16")
            assert "hush" not in page.evaluate("sessionStorage.getItem('rankzero.form')")

            product.stop()
            expect(page.locator("#away")).to_have_text("Rankzero does not answer. Trying again…")
            for _ in range(2):  # Streamlit has asked in vain, and would have opened its dialog
                page.wait_for_event("requestfailed", lambda lost: "/_stcore/" in lost.url)
            expect(page.get_by_role("dialog")).to_have_count(0)
            product.start()
            expect(page.locator("#away")).to_be_empty()
            for _ in range(2):
                expect(page.get_by_text("Restored from this tab")).to_be_visible()
                expect(box(page, "Name")).to_have_value("keep me")
                expect(box(page, "Learning rate")).to_have_value("0.004")
                expect(page.get_by_role("radio", name="bf16")).to_be_checked()
                expect(box(page, "Extra arguments")).to_have_value("")
                page.reload()
            expect(box(page, "Name")).to_have_value("keep me")
            page.get_by_role("button", name="Start from an empty form").click()
            expect(box(page, "Name")).to_have_value("")
            page.wait_for_function("sessionStorage.getItem('rankzero.form') === null")
            page.reload()
            expect(box(page, "Name")).to_have_value("")
            expect(page.get_by_text("Restored from this tab")).to_have_count(0)
            assert visit.errors == []
        product.stop()
    finally:
        product.clean_up()
