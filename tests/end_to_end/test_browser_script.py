"""A script nobody here wrote, launched from the form in a real browser: it is handed what the form says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.end_to_end.product import Product

pytestmark = pytest.mark.long


CONFIG = """
import argparse

def get_parser():
    p = argparse.ArgumentParser()
    p.add_argument("data", help="folder of the images")
    p.add_argument("-b", "--batch-size", type=int, default=256, help="samples per process")
    p.add_argument("--lr", "--learning-rate", type=float, default=0.1)
    p.add_argument("--arch", choices=["resnet18", "resnet50"], default="resnet18")
    p.add_argument("--resume", default=None)
    p.add_argument("--ema", action=argparse.BooleanOptionalAction, default=True)
    p.add_argument("--local-workers", type=int, default=2)
    return p
"""
SCRIPT = """
import json, os
from config import get_parser

args = get_parser().parse_args()
if os.environ["RANK"] == "0":
    print("got", json.dumps(vars(args)), flush=True)
"""


def test_a_foreign_script_gets_what_the_form_says(product: Product, browser_page: Page, tmp_path: Path):
    (tmp_path / "config.py").write_text(CONFIG)
    (tmp_path / "train.py").write_text(SCRIPT)
    page = browser_page
    page.set_viewport_size({"width": 1280, "height": 1800})  # a list closes when the page scrolls under it
    page.get_by_test_id("stPageLink").get_by_role("link", name="Launch").click()
    page.get_by_role("radio", name="Script", exact=True).click()
    field(page, "Script or folder").fill(str(tmp_path / "train.py"))
    expect(page.get_by_text("Automatic is torchrun here. It reads RANK from the environment, line 6.")).to_be_visible()
    expect(page.get_by_text("train.py requires data")).to_be_visible()
    expect(page.get_by_role("checkbox", name="--batch-size={batch_size}")).to_be_checked()
    fill_in(page)
    expect(page.get_by_text(re.compile(r"train\.py '/my data' .*--batch-size=8"))).to_be_visible()
    expect(page.get_by_text("0.1 (script’s default) on one rank becomes 0.2 on 2 ranks (linear)")).to_be_visible()
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url(re.compile(r"/run\?id=[a-z0-9]{10}$"))
    assert what_it_got(product, page.url[-10:]) == {
        "data": "/my data", "batch_size": 8, "lr": 0.2, "arch": "resnet50", "resume": None, "ema": False,
        "local_workers": 2,
    }  # fmt: skip


def fill_in(page: Page) -> None:
    """As a person does: some of the form's own fields, some of the script's."""
    field(page, "Processes per node").fill("2")
    field(page, "Batch per process").fill("8")
    page.get_by_role("radio", name="linear", exact=True).click()
    field(page, "data *").fill("/my data")
    expect(page.get_by_text(re.compile(r"train\.py '/my data' "))).to_be_visible()
    page.get_by_role("combobox", name="--arch").click()
    page.get_by_role("option", name="resnet50").click()
    page.get_by_text("--ema", exact=True).click()  # the switch itself lies below its picture


def field(page: Page, name: str):
    """A line to type in."""
    return page.get_by_role("textbox", name=name, exact=True)


def what_it_got(product: Product, run_id: str) -> dict[str, object]:
    """The arguments as rank 0 printed them."""
    product.wait_state(run_id, "succeeded")
    log = product.request("GET", f"/api/runs/{run_id}/logs?rank=0").text
    (line,) = [line for line in log.splitlines() if line.startswith("got ")]
    return dict(json.loads(line.removeprefix("got ")))
