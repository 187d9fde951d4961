"""The Runs page in Chromium: links, sorting, what needs attention, and a run's state in the title of its tab."""

from __future__ import annotations

import re
from collections.abc import Iterator
from threading import Semaphore
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.service.service import Service
from domain.spec import RunEdit
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_runs import seed_runs
from tests.dashboard.seeded_store import HOSTILE_NAME, Seed, seed
from tests.end_to_end.browsers import Chromium
from tests.end_to_end.product import WAIT_S, wait_for

pytestmark = pytest.mark.real

EARLY = """() => {
  window.early = [];
  let inClick = false;
  const ask = window.fetch;
  const now = performance.now();
  performance.now = () => now;
  addEventListener('click', () => { inClick = true; setTimeout(() => { inClick = false; }); }, true);
  window.fetch = (url, options) => {
    if (inClick) early.push(String(url).split('/api/')[1]);
    return ask(url, options);
  };
}"""
"""Note what is asked while a click is handled, before Streamlit hears of it; no answer grows old on a slow machine."""
FIRST = ["nan at once", "just launched", "being stopped", "gpt wide, long warm-up", "bad labels"]


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
def page(browser: Chromium, dashboard: Browsed) -> Iterator[Page]:
    """The page, signed in; at the end it may have had no error."""
    with browser.visit(1440) as visit:
        page = visit.new_page()
        page.goto(dashboard.entrance)
        yield page
        assert visit.errors == []


def names(page: Page) -> Locator:
    return page.locator("tbody td.name a")


def head(page: Page, title: str) -> Locator:
    return page.get_by_role("columnheader", name=title)


@pytest.mark.long
def test_an_empty_page_says_what_to_do_and_shows_the_first_runs_by_itself(page, dashboard, request):
    expect(page.get_by_role("link", name="Launch the first run")).to_be_visible()
    request.getfixturevalue("made")
    expect(names(page).first).to_have_text("nan at once")
    expect(page.get_by_role("combobox", name="Search")).to_be_visible()


@pytest.mark.long
def test_running_and_failed_runs_stand_above_a_folded_queue(page, made):
    expect(names(page).nth(0)).to_be_visible()
    shown = names(page).all_inner_texts()
    assert shown[:5] == FIRST
    assert shown[-2:] == [HOSTILE_NAME, "digits baseline"] and len(shown) == 12
    page.get_by_role("button", name="and 8 more queued").click()
    expect(names(page)).to_have_count(20)


@pytest.mark.long
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


def test_queued_run_has_not_started_and_its_reason_has_room(page, made):
    page.set_viewport_size({"width": 1280, "height": 900})
    row = page.locator("tbody tr", has_text="queued 0").first
    expect(row.locator("td.started")).to_have_text("–")
    reason = row.locator(".under")
    expect(reason).to_contain_text("needs 8 GPU")
    assert reason.evaluate("it => it.clientWidth") > 250


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
    expect(page.get_by_label("Select nan at once")).to_be_focused()
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


@pytest.mark.long
def test_runs_that_need_attention_are_counted_and_can_be_shared(page, made, dashboard):
    filter_button = page.get_by_role("button", name="Needs attention")
    expect(filter_button).to_have_text("Needs attention2")
    expect(page.locator("tbody tr", has_text="nan at once").locator(".pill")).to_have_text("!NaN loss")
    filter_button.click()
    expect(names(page)).to_have_text(["nan at once", "bad labels"])
    page.wait_for_url("**/?attention=1")
    page.goto(f"{dashboard.url}/?attention=1")
    expect(names(page)).to_have_text(["nan at once", "bad labels"])
    expect(filter_button).to_have_attribute("aria-pressed", "true")


@pytest.mark.long
def test_the_table_goes_on_by_itself_and_the_focus_stays(page, made):
    link = names(page).get_by_text("just launched")
    link.focus()
    made.report("just launched", "running", 0)
    row = page.locator("tbody tr", has_text="just launched")
    expect(row.locator(".pill")).to_have_text("●running")
    expect(link).to_be_focused()


@pytest.mark.long
def test_no_row_moves_under_the_pointer(page, made, dashboard):
    expect(names(page).first).to_be_visible()
    before, last = names(page).all_inner_texts(), names(page).last.inner_text()
    page.wait_for_timeout(3500)  # a list that was asked for may move for three seconds
    with page.expect_response(lambda answer: "/api/overview" in answer.url):
        names(page).nth(3).hover()
        dashboard.service.edit(made.runs[last], RunEdit(pinned=True, note="moved up"))
    for _ in range(3):
        with page.expect_response(lambda answer: "/api/overview" in answer.url):
            names(page).nth(3).hover(position={"x": 3, "y": 3})
            names(page).nth(3).hover(position={"x": 6, "y": 3})
    assert names(page).all_inner_texts() == before
    page.mouse.move(1, 1)
    expect(names(page).first).to_have_text(last)
    dashboard.service.edit(made.runs[last], RunEdit(pinned=False, note=""))
    expect(names(page).first).to_have_text(before[0])


def test_a_search_is_in_the_address_and_its_errors_point_at_the_word(page, made):
    search = page.get_by_role("combobox", name="Search")
    search.fill("sta")
    proposal = page.get_by_role("option", name="state:")
    expect(proposal).to_be_visible()
    search.press("ArrowDown")
    expect(proposal).to_have_attribute("aria-selected", "true")
    search.press("Enter")
    page.get_by_role("option", name="state:running").click()
    expect(search).to_have_value("state:running ")
    page.wait_for_url(re.compile(r"filter=state%3Arunning"))
    search.fill("lr<0.001 sate:running")
    problem = page.locator(".problem")
    expect(problem).to_contain_text('There is no field "sate": did you mean state?')
    expect(problem.locator("mark")).to_have_text("sate")
    search.fill("lr<0.001 state:running")
    expect(names(page)).to_have_text(["gpt wide, long warm-up"])
    expect(problem).to_be_hidden()
    page.wait_for_url(re.compile(r"filter=lr%3C0.001\+state%3Arunning"))


def test_the_click_that_leads_back_asks_for_the_list_once_and_shows_what_was_written_before(page, made, dashboard):
    page.get_by_role("combobox", name="Search").fill("gpt")
    expect(names(page)).to_have_text(["gpt wide, long warm-up"])
    page.get_by_role("link", name="Nodes").click()
    page.wait_for_url("**/nodes")
    expect(names(page)).to_have_count(0)
    run_id = made.runs["gpt wide, long warm-up"]
    dashboard.service.edit(run_id, RunEdit(note="written meanwhile"))
    page.evaluate(EARLY)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("/api/")[2]))
    page.get_by_role("link", name="Runs").click()
    expect(page.locator("tbody tr", has_text="gpt wide").locator("td.note")).to_have_text("written meanwhile")
    (early,) = page.evaluate("early")
    assert early.startswith("overview?filter=gpt&offset=0") and asked.count(early) == 1
    dashboard.service.edit(run_id, RunEdit(note=""))


def test_selected_runs_are_tagged_archived_and_deleted_together(page, made, dashboard):
    for name in ("bad labels", "digits baseline"):
        page.get_by_label(f"Select {name}").check()
    bar = page.get_by_role("group", name="Selected runs")
    bar.get_by_label("Export as").select_option("csv")
    with page.expect_download() as download:
        bar.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "rankzero-2-runs.csv"
    bar.get_by_label("Tag").fill("old")
    bar.get_by_role("button", name="Add tag").click()
    expect(bar.get_by_role("status")).to_have_text("2 tagged old.")
    expect(bar.get_by_text("0 selected")).to_be_hidden()
    expect(bar.get_by_role("button", name="Delete")).to_be_hidden()
    expect(page.locator(".tag", has_text="old")).to_have_count(2)
    page.get_by_label("Select bad labels").check()
    page.get_by_label("Select gpt wide, long warm-up").check()
    bar.get_by_role("button", name="Delete").click()
    bar.get_by_role("button", name="Delete 2?").click()
    expect(bar.get_by_role("status")).to_contain_text("1 deleted.")
    expect(bar.locator("b").first).to_have_text("1 selected")
    bar.get_by_text("1 refused").click()
    expect(bar.get_by_role("listitem")).to_contain_text("has not ended; stop it first")
    bar.get_by_role("button", name="Close").click()
    expect(bar.get_by_text("1 refused")).to_be_hidden()
    expect(names(page).get_by_text("bad labels")).to_have_count(0)
    assert page.url.endswith("/") or "run?id" not in page.url


def test_many_runs_are_changed_by_the_server_which_tells_every_page_and_can_be_cancelled(
    page, made, dashboard, monkeypatch
):
    bar = page.get_by_role("group", name="Selected runs")
    every = page.get_by_label("Select all runs of this list")
    expect(names(page).first).to_be_visible()
    shown = names(page).all_inner_texts()
    page.get_by_label(f"Select {shown[1]}").check()
    page.locator("tbody td.pick label").nth(4).click(modifiers=["Shift"])
    expect(bar.locator("b")).to_have_text("4 selected")
    assert every.evaluate("box => box.indeterminate")
    every.click()
    expect(bar).to_be_hidden()
    every.focus()
    page.keyboard.press("Space")
    folded = int(re.findall(r"\d+", page.locator(".more").inner_text())[0])
    expect(bar.locator("b")).to_have_text(f"{len(shown) + folded} selected")
    expect(bar.get_by_role("link", name="Compare")).to_have_attribute("href", re.compile(r"runs=\w+,\w+"))

    may_go_on, original = Semaphore(1), Service.edit

    def held(*arguments: Any) -> Any:
        assert may_go_on.acquire(timeout=WAIT_S)
        return original(*arguments)

    monkeypatch.setattr(Service, "edit", held)
    total = len(shown) + folded
    bar.get_by_label("Tag").fill("many")
    bar.get_by_role("button", name="Add tag").click()
    expect(bar.get_by_role("status")).to_have_text(f"Tagging 1 of {total}…")
    page.goto(f"{dashboard.url}/nodes")
    with page.context.new_page() as tab:  # which has selected nothing
        tab.goto(dashboard.url)
        other = tab.get_by_role("group", name="Selected runs")
        expect(other.get_by_role("status")).to_have_text(f"Tagging 1 of {total}…")
        may_go_on.release()
        expect(other.get_by_role("status")).to_have_text(f"Tagging 2 of {total}…")
        page.goto(dashboard.url)
        expect(bar.get_by_role("progressbar")).to_have_attribute("value", "2")
        with page.expect_response(re.compile(r"/bulk-actions/\w+/cancel$")):
            bar.get_by_role("button", name="Cancel").click()
        may_go_on.release()
        sentence = f"Cancelled: 3 tagged many. {total - 3} not reached."
        expect(bar.get_by_role("status")).to_have_text(sentence)
        expect(other.get_by_role("status")).to_have_text(sentence)
    expect(bar.locator("b").first).to_have_text(f"{total - 3} selected")
    expect(bar.get_by_role("button", name="Cancel")).to_be_hidden()
    bar.get_by_role("button", name="Clear").click()


@pytest.mark.long
def test_a_phone_shows_name_state_and_progress(page, made):
    page.set_viewport_size({"width": 390, "height": 800})
    row = page.locator("tbody tr", has_text="nan at once")
    for part in (".pill", ".name a", ".under", ".share"):
        expect(row.locator(part)).to_be_visible()
    expect(row.locator("td.loss")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_on_a_wide_screen_the_filters_end_where_the_table_ends(page, made):
    page.set_viewport_size({"width": 2560, "height": 1000})
    names(page).first.wait_for()

    def edge(place: Locator) -> float:
        box = place.bounding_box()
        return box["x"] + box["width"] if box else 0.0

    ends = [page.locator(".st-key-runs_logs"), page.locator("table[aria-label=Runs]")]
    wait_for(lambda: 2500 < edge(ends[0]) == pytest.approx(edge(ends[1]), abs=1), "both at the right edge")


def test_many_runs_are_scrolled_through_and_tags_are_text(page, made, dashboard):
    store = dashboard.service.store
    dashboard.service.edit(made.runs["digits baseline"], RunEdit(pinned=True, add_tags=["<b>x</b>"]))
    expect(page.locator("tbody tr", has_text="digits baseline").locator(".tag").first).to_have_text("<b>x</b>")
    dashboard.service.edit(made.runs["digits baseline"], RunEdit(pinned=False, remove_tags=["<b>x</b>"]))
    seed_runs(store, dashboard.service.clock(), 1000)
    expect(page.get_by_role("table", name="Runs")).to_have_attribute("aria-rowcount", re.compile(r"\d{3,}"))

    def is_at_the_end() -> bool:  # which lies lower once the heights of more rows are known
        page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop = 1e9")
        return re.search(r" [1-9]$", names(page).last.inner_text()) is not None

    wait_for(is_at_the_end, "the last row")
    expect(names(page).get_by_text(HOSTILE_NAME)).to_be_hidden()
    assert page.locator("tbody tr").count() < 150


@pytest.mark.long
def test_columns_are_chosen_with_the_keyboard_and_a_view_of_them_is_saved(page, dashboard, made):
    page.get_by_role("button", name="Columns").press("Enter")
    page.get_by_label("Field or series").fill("batch_size")
    page.keyboard.press("Enter")
    expect(head(page, "batch_size")).to_be_visible()
    page.get_by_label("Remove Progress").press("Enter")
    expect(head(page, "Progress")).to_have_count(0)
    page.get_by_label("Move batch_size left").press("Enter")
    expect(page.get_by_label("Move batch_size left")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Columns")).to_be_focused()
    head(page, "batch_size").get_by_role("button").click()
    expect(page).to_have_url(re.compile(r"sort=-batch_size.*column=state&column=name"))
    sorted_by_batch = page.url
    page.goto(dashboard.url)  # the plain address is in the server's order
    expect(head(page, "batch_size")).to_have_attribute("aria-sort", "none")
    page.goto(sorted_by_batch)
    expect(head(page, "batch_size")).to_have_attribute("aria-sort", "descending")
    assert not re.search("column=progress", page.url)
    page.get_by_role("button", name="Views").click()
    page.get_by_label("Name of this view").fill("by batch")
    page.get_by_role("button", name="Save this view").click()
    expect(page.get_by_role("button", name="by batch", exact=True)).to_be_visible()

    page.evaluate("sessionStorage.clear()")
    page.goto(f"{dashboard.url}/?filter=state:queued")
    expect(head(page, "Progress")).to_be_visible()
    page.get_by_role("button", name="Views").click()
    page.get_by_role("button", name="by batch", exact=True).click()
    expect(head(page, "batch_size")).to_have_attribute("aria-sort", "descending")
    expect(page.get_by_role("combobox", name="Search")).to_have_value("")
    expect(page.locator("tbody td.added").first).to_have_text(re.compile(r"^\d+$"))
