"""The Runs page in Chromium: links, sorting, what needs attention, and a run's state in the title of its tab."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_store import HOSTILE_NAME, Seed, seed
from tests.end_to_end.browsers import CHROMIUM, chromium

pytestmark = pytest.mark.skipif(
    shutil.which(CHROMIUM) is None, reason="needs Chromium (apt-get install chromium)"
)
LIMIT_MS = 60_000
FIRST = ["nan at once", "just launched", "being stopped", "gpt wide, long warm-up", "bad labels"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    """Without any run at first."""
    with browsed(opened(tmp_path_factory.mktemp("runs") / "data")) as it:
        yield it


@pytest.fixture(scope="module")
def made(dashboard: Browsed) -> Seed:
    """A run in every state, and a queue."""
    seeded = seed(dashboard.service.store, dashboard.service.clock())
    for number in range(12):
        seeded.launch(f"queued {number:02}", 9 - number / 2, gpus_per_node=8)
    seeded.hear_all(dashboard.service.clock())
    return seeded


@pytest.fixture
def page(browser: Browser, dashboard: Browsed) -> Iterator[Page]:
    """The page, signed in; at the end it may have had no error."""
    expect.set_options(timeout=LIMIT_MS)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(LIMIT_MS)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(dashboard.entrance)
    yield page
    context.close()
    assert errors == []


def names(page: Page) -> Locator:
    return page.locator("tbody td.name a")


def head(page: Page, title: str) -> Locator:
    return page.get_by_role("columnheader", name=title)


def test_an_empty_page_says_what_to_do_and_shows_the_first_runs_by_itself(page, dashboard, request):
    expect(page.get_by_role("link", name="Launch the first run")).to_be_visible()
    request.getfixturevalue("made")
    expect(names(page).first).to_have_text("nan at once")
    expect(
        page.get_by_role("searchbox", name="Search").or_(page.get_by_label("Search")).first
    ).to_be_visible()


def test_what_trains_or_failed_stands_above_a_queue_that_is_folded(page, made):
    expect(names(page).nth(0)).to_be_visible()
    shown = names(page).all_inner_texts()
    assert shown[:5] == FIRST
    assert shown[-2:] == [HOSTILE_NAME, "digits baseline"] and len(shown) == 12
    page.get_by_role("button", name="and 8 more queued").click()
    expect(names(page)).to_have_count(20)


def test_heads_sort_with_mouse_and_keyboard_and_say_so(page, made):
    expect(names(page).first).to_have_text(FIRST[0])
    head(page, "Step").get_by_role("button").click()
    expect(head(page, "Step")).to_have_attribute("aria-sort", "descending")
    expect(names(page).first).to_have_text("digits baseline")
    head(page, "Step").get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(head(page, "Step")).to_have_attribute("aria-sort", "ascending")
    expect(names(page).first).to_have_text("bad labels")
    assert "run?id" not in page.url
    page.keyboard.press("Enter")
    expect(head(page, "Step")).to_have_attribute("aria-sort", "none")
    expect(names(page).first).to_have_text(FIRST[0])


def test_rows_are_links_for_tabs_windows_and_the_keyboard(page, made):
    run = names(page).get_by_text("bad labels")
    row = page.locator("tbody tr", has_text="bad labels")
    for click in ({"modifiers": ["ControlOrMeta"]}, {"button": "middle"}):
        for place in (run, row.locator("td.curve"), row.locator("td.loss .value")):
            with page.context.expect_page() as tab:
                place.click(**click, force=True)
            tab.value.wait_for_url(f"**/run?id={made.runs['bad labels']}")
            tab.value.close()
    assert "run?id" not in page.url
    head(page, "Started").get_by_role("button").focus()
    page.keyboard.press("Tab")
    expect(names(page).first).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/run?id={made.runs['nan at once']}")
    expect(page).to_have_title("! NaN loss nan at once – Rankzero")
    page.go_back()
    row.locator("td.progress").click(force=True)
    page.wait_for_url(f"**/run?id={made.runs['bad labels']}")
    expect(page).to_have_title("✕ failed bad labels – Rankzero")
    expect(page.locator('link[rel~="icon"]')).to_have_attribute("href", re.compile("b3262b"))


def test_what_needs_attention_is_named_counted_and_can_be_shared(page, made, dashboard):
    filter_button = page.get_by_role("button", name="Needs attention")
    expect(filter_button).to_have_text("Needs attention2")
    expect(page.locator("tbody tr", has_text="nan at once").locator(".pill")).to_have_text("!NaN loss")
    filter_button.click()
    expect(names(page)).to_have_text(["nan at once", "bad labels"])
    page.wait_for_url("**/?attention=1")
    page.goto(f"{dashboard.url}/?attention=1")
    expect(names(page)).to_have_text(["nan at once", "bad labels"])
    expect(filter_button).to_have_attribute("aria-pressed", "true")


def test_the_table_goes_on_by_itself_and_the_focus_stays(page, made):
    link = names(page).get_by_text("just launched")
    link.focus()
    made.report("just launched", "running", 0)
    row = page.locator("tbody tr", has_text="just launched")
    expect(row.locator(".pill")).to_have_text("●running")
    expect(link).to_be_focused()


def test_a_phone_shows_name_state_and_progress(page, made):
    page.set_viewport_size({"width": 390, "height": 800})
    row = page.locator("tbody tr", has_text="nan at once")
    for part in (".pill", "a", ".under", ".share"):
        expect(row.locator(part)).to_be_visible()
    expect(row.locator("td.loss")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
