"""A project uploaded in a real browser, launched, and launched again from its page."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.end_to_end.browsers import Chromium
from tests.end_to_end.product import Product

pytestmark = pytest.mark.real

PATIENCE_MS = 180_000


@pytest.mark.long
def test_an_uploaded_project_is_launched_and_launched_again(
    product: Product, browser: Chromium, tmp_path: Path
) -> None:
    project, broken = tmp_path / "project.zip", tmp_path / "broken.zip"
    with zipfile.ZipFile(project, "w") as archive:
        archive.writestr("project/train.py", "from model import VALUE\nprint('value', VALUE)\n")
        archive.writestr("project/model.py", "VALUE = 7\n")
    broken.write_bytes(b"no archive")
    with browser.visit(limit_ms=PATIENCE_MS) as visit:
        page = visit.new_page()
        page.goto(f"{product.url}/launch?token={product.token()}")
        page.get_by_role("radio", name="Upload").click()
        page.get_by_role("button", name="Choose a file").wait_for()
        page.locator("input[type=file]").set_input_files(broken)
        expect(page.get_by_text("broken.zip is not a valid archive")).to_be_visible()
        page.locator("input[type=file]").set_input_files(project)
        expect(page.get_by_role("textbox", name="Entry file")).to_have_value("train.py")
        page.get_by_test_id("stButton").get_by_role("button", name="Launch", exact=True).click()
        page.wait_for_url("**/run?id=*")
        first = page.url.partition("id=")[2][:10]
        page.get_by_role("link", name="Launch again with changes").click()
        page.wait_for_url("**/launch*")
        expect(page.get_by_text("From project.zip: 2 files")).to_be_visible()
        page.get_by_test_id("stButton").get_by_role("button", name="Launch", exact=True).click()
        page.wait_for_url(lambda url: "/run?id=" in url and first not in url)
        second = page.url.partition("id=")[2][:10]
    for run_id in (first, second):
        assert product.wait_state(run_id)["state"] == "succeeded"
        assert "value 7" in product.request("GET", f"/api/runs/{run_id}/logs").text
    assert product.run(first)["spec"]["snapshot"] == product.run(second)["spec"]["snapshot"]
