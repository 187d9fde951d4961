"""Ways from one page to another in Chromium: links that never end on a blank page, also from what refreshes itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.components import browser as component_browser
from domain.messages import Reason
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_store import Seed, seed
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.real

TRAINING = "gpt wide, long warm-up"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browsed, Seed]]:
    service = opened(tmp_path_factory.mktemp("links") / "data")
    made = seed(service.store, service.clock())
    made.node("gpu-2", 2)
    made.launch("too big", 900, target="image_classifier", gpus_per_node=1, batch_size=32)
    made.start("too big", 890)
    made.report("too big", "failed", 800, reason=Reason.OUT_OF_MEMORY, message="CUDA out of memory")
    with browsed(service) as it:
        yield it, made


@pytest.fixture
def page(browser: Chromium, dashboard: tuple[Browsed, Seed]) -> Iterator[Page]:
    """A tab that has signed in; at the end it may have had no error."""
    with browser.visit() as visit:
        page = visit.new_page()
        page.goto(dashboard[0].entrance)
        yield page
        assert visit.errors == []


def open_run(page: Page, dashboard: tuple[Browsed, Seed], label: str) -> None:
    page.goto(f"{dashboard[0].url}/run?id={dashboard[1].runs[label]}")


def again(page: Page) -> Locator:
    return page.get_by_role("link", name="Launch again with changes")


def filled_from(label: str) -> str:
    return f"Filled in from run {label}"


@pytest.mark.long
@pytest.mark.parametrize("clicks", [3, 12])
def test_every_click_on_launch_again_of_a_running_run_shows_the_form(page, dashboard, clicks):
    open_run(page, dashboard, TRAINING)
    for _ in range(clicks):
        again(page).click()
        expect(page.get_by_text(filled_from(TRAINING))).to_be_visible()
        expect(page.get_by_role("textbox", name="Batch per GPU")).to_have_value("8")
        page.go_back()


def test_nothing_is_asked_for_while_a_page_is_left(page, dashboard, monkeypatch):
    real = component_browser.refresh
    monkeypatch.setattr(component_browser, "refresh", lambda every_s, trouble: real(0.05, trouble))
    open_run(page, dashboard, TRAINING)
    for _ in range(4):
        again(page).click()
        expect(page.get_by_text(filled_from(TRAINING))).to_be_visible()
        page.go_back()
    expect(again(page)).to_be_visible()


@pytest.mark.long
def test_a_second_tab_is_the_browsers_own_matter(page, dashboard):
    open_run(page, dashboard, TRAINING)
    for click in ({"modifiers": ["ControlOrMeta"]}, {"button": "middle"}):
        with page.context.expect_page() as tab:
            again(page).click(**click)
        expect(tab.value.get_by_text(filled_from(TRAINING))).to_be_visible()
        tab.value.close()
    assert "/run?id=" in page.url
    again(page).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text(filled_from(TRAINING))).to_be_visible()


@pytest.mark.long
def test_a_run_launched_again_fills_the_form_anew_but_other_pages_do_not(page, dashboard):
    open_run(page, dashboard, TRAINING)
    again(page).click()
    batch = page.get_by_role("textbox", name="Batch per GPU")
    batch.fill("24")
    expect(page.get_by_test_id("stMain")).to_contain_text("48")  # of both ranks: the server has heard
    page.get_by_role("link", name="Nodes").click()
    expect(page.locator(".node").first).to_be_visible()
    page.get_by_role("link", name="Launch", exact=True).click()
    expect(batch).to_have_value("24")
    open_run(page, dashboard, TRAINING)
    again(page).click()
    expect(batch).to_have_value("8")


@pytest.mark.long
def test_the_fix_and_the_way_back_are_links_too(page, dashboard):
    open_run(page, dashboard, "too big")
    page.get_by_role("link", name="Launch with batch 16").click()
    expect(page.get_by_text(filled_from("too big"))).to_be_visible()
    expect(page.get_by_role("textbox", name="Batch per GPU")).to_have_value("16")
    page.goto(f"{dashboard[0].url}/run?id=zzzzzzzzzz")
    page.get_by_role("link", name="All runs").click()
    expect(page.get_by_role("combobox", name="Search")).to_be_visible()


@pytest.mark.long
def test_deleting_a_run_leads_to_the_others(page, dashboard):
    open_run(page, dashboard, "bad labels")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("button", name="Delete the run").click()
    expect(page.get_by_role("combobox", name="Search")).to_be_visible()
    assert "run?id" not in page.url


@pytest.mark.long
def test_a_run_of_a_node_is_opened_from_its_cell_and_from_its_details(page, dashboard):
    page.goto(f"{dashboard[0].url}/nodes?node=gpu-1")
    page.get_by_role("link", name="nan at once · running").click()
    expect(page.get_by_role("heading", name="nan at once")).to_be_visible()
    page.get_by_role("link", name="Nodes").click()
    page.locator(".node .cell.run").first.click()
    expect(again(page)).to_be_visible()
