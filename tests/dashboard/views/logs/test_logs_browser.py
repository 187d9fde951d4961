"""The Search logs page in Chromium: from a text to the runs that printed it, and to the line in the log of one."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.dashboard.browsed import browsed, opened
from tests.dashboard.seeded_store import Seed
from tests.dashboard.visits import axe_faults, signed_in
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.long

MARKS = """() => [...CSS.highlights.get('log-match')].map(
    ({ startContainer, startOffset, endOffset }) => startContainer.data.slice(startOffset, endOffset))"""


def test_a_text_leads_to_the_runs_that_printed_it_and_to_its_line(browser: Chromium, tmp_path) -> None:
    with browsed(opened(tmp_path / "data")) as dashboard, signed_in(browser, dashboard) as visit:
        seed = Seed(dashboard.service.store, dashboard.service.clock())
        seed.node("gpu-1", 3)
        for name in ("bold", "calm", "other"):
            seed.launch(name, 900, gpus_per_node=1)
            seed.start(name, 890)
            seed.report(name, "succeeded", 100, exit_code=0)
        log = b"<b>Bingo</b> once\n" + b"quiet\n" * 900 + b"no bingo, BINGO\n" + b"quiet\n" * 5
        seed.file(dashboard.service.files, "bold", "logs/rank0.out", log)
        seed.file(dashboard.service.files, "calm", "logs/rank0.out", b"quiet\n")
        seed.file(dashboard.service.files, "other", "logs/rank0.err", b"bingo\n")

        page = visit.new_page()
        page.goto(f"{dashboard.url}/?filter=-name:other")
        page.get_by_role("link", name="Logs", exact=True).click()
        text = page.get_by_label("Text in the logs")
        status = page.get_by_role("region", name="Search logs").get_by_role("status")
        runs = page.get_by_label("Only runs that match")
        expect(runs).to_have_value("-name:other")
        expect(text).to_be_focused()
        text.fill("bingo")
        runs.fill("sate:x")
        runs.press("Enter")
        expect(status).to_contain_text("did you mean state?")
        runs.fill("-name:other")
        runs.press("Enter")
        expect(status).to_have_text("2 of 2 runs searched, 1 run printed it, in 2 lines.")
        assert re.search(r"logs\?filter=-name%3Aother&q=bingo$", page.url)
        hits = page.get_by_role("list", name="Runs that printed it").get_by_role("listitem")
        expect(hits.locator("mark")).to_have_text("Bingo")
        expect(hits.locator("code")).to_have_text("<b>Bingo</b> once")
        assert axe_faults(page) == []
        page.get_by_role("link", name="Select these runs").click()
        expect(page.get_by_role("group", name="Selected runs").locator("b")).to_have_text("1 selected")
        expect(page.get_by_label("Select bold")).to_be_checked()
        page.go_back()

        hits.locator("a.line").click()
        searched = page.get_by_label("Search the whole log")
        expect(searched).to_have_value("bingo")
        expect(page.locator(".chosen")).to_have_text("<b>Bingo</b> once")
        page.get_by_role("button", name="Next match").click()
        expect(page.locator(".chosen")).to_have_text("no bingo, BINGO")
        expect(page.locator(".found")).to_have_text("2 of 2 lines")
        assert page.evaluate(MARKS) == ["Bingo", "bingo", "BINGO"]
        assert visit.errors == []
