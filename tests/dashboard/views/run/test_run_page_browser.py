"""The Run page in Chromium, served as it is: it builds itself from top to bottom, and its address says what is open."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from dashboard.live.hub import series_message
from db.attempts import attempt_queries
from db.models import Series
from db.ranks import ranks
from domain.messages import Point, PointBatch
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_store import Seed, seed
from tests.db import task_streams
from tests.end_to_end.browsers import Chromium, Visit
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.real

WATCH_SHIFTS = """
window.shifts = [];
const where = (source) => `${source.node?.parentElement?.className ?? ''} > ${source.node?.className ?? source.node} ` +
    `${JSON.stringify(source.previousRect)} -> ${JSON.stringify(source.currentRect)}`;
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
        if (!entry.hadRecentInput) window.shifts.push([entry.value, ...entry.sources.map(where)]);
    }
}).observe({type: 'layout-shift', buffered: true});
"""
NAMES = [
    "train/loss",
    "train/samples_per_s",
    "train/lr",
    "train/grad_norm",
    "val/loss",
    "val/accuracy",
    "debug/a",
]
MOST_SHIFT = 0.1
"""Of the cumulative layout shift, where Web Vitals' range "good" ends. A calm machine shows about 0.01; on a
starved one several moves fall into one frame."""


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browsed, Seed]]:
    service = opened(tmp_path_factory.mktemp("run page") / "data")
    seeded = seed(service.store, service.clock(), service.files.root)
    with browsed(service) as it:
        yield it, seeded


@pytest.fixture
def visit(browser: Chromium, dashboard: tuple[Browsed, Seed]) -> Iterator[Visit]:
    """Somebody who has signed in, and whose pages may have no error."""
    with browser.visit() as visit:
        visit.context.request.get(dashboard[0].entrance)
        yield visit
        assert visit.errors == []


def shown(page: Page, dashboard: tuple[Browsed, Seed], label: str) -> Page:
    """A run's page, as far as its header is there."""
    served, seeded = dashboard
    page.add_init_script(WATCH_SHIFTS)
    page.goto(f"{served.url}/run?id={seeded.runs[label]}")
    expect(page.locator(".run-header .name")).to_have_text(label)
    return page


def shift(page: Page) -> float:
    """What moved so far without anybody's doing; printed, for whoever has to find out."""
    shifts = page.evaluate("window.shifts")
    for value, *sources in shifts:
        print(f"{value:.4f}", *sources, sep="\n    ")
    return sum(value for value, *_ in shifts)


@pytest.mark.long
def test_a_page_with_charts_builds_itself_from_top_to_bottom(visit, dashboard) -> None:
    page = shown(visit.new_cold_page(), dashboard, "digits baseline")
    expect(page.locator(".card canvas").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert shift(page) < MOST_SHIFT


@pytest.mark.parametrize(
    ("width", "label", "tab"),
    [
        (390, "gpt wide, long warm-up", "spec"),
        (2560, "gpt wide, long warm-up", "code"),
        (2560, "bad labels", "charts"),
    ],
)
@pytest.mark.long
def test_no_tab_is_pushed_down_on_narrow_and_wide_screens(visit, dashboard, width: int, label: str, tab: str) -> None:
    page = visit.new_cold_page()
    page.add_init_script(WATCH_SHIFTS)
    page.set_viewport_size({"width": width, "height": 844})
    served, seeded = dashboard
    page.goto(f"{served.url}/run?id={seeded.runs[label]}&tab={tab}")
    expect(page.locator(".run-header .name")).to_have_text(label)
    expect(page.get_by_role("button", name="More")).to_be_attached()
    page.wait_for_load_state("networkidle")
    assert shift(page) < MOST_SHIFT


@pytest.mark.long
def test_the_open_tab_stands_in_the_address_and_a_reload_keeps_it(visit, dashboard) -> None:
    page = shown(visit.new_page(), dashboard, "digits baseline")
    expect(page.get_by_role("tab")).to_have_text(["Charts", "Logs", "Ranks", "Checkpoints", "History", "Code", "Spec"])
    expect(page.locator(".card").first).to_be_visible()
    page.get_by_role("tab", name="Logs").click()
    expect(page.locator(".log-view")).to_be_visible()
    expect(page).to_have_url(re.compile(r"&tab=logs$"))
    expect(page.locator(".charts")).to_have_count(0)
    page.reload()
    expect(page.locator(".log-view")).to_be_visible()
    expect(page.get_by_role("tab", name="Logs")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="History").click()
    expect(page.get_by_text("running: all ranks exist")).to_be_visible()
    page.go_back()
    expect(page.locator(".log-view")).to_be_visible()


@pytest.mark.long
def test_points_of_folded_groups_are_not_loaded_before_they_are_opened(visit, dashboard) -> None:
    _, seeded = dashboard
    log(seeded, "gpt wide, long warm-up", {f"debug/{i}": [(1, 0.5, 1.0), (2, 0.25, 2.0)] for i in range(20)})
    page = shown(visit.new_page(), dashboard, "gpt wide, long warm-up")
    expect(page.locator('.card[data-series="train/lr"] canvas')).to_be_visible()
    assert not any(name.startswith("debug/") for name in loaded(page))
    page.get_by_text("debug/", exact=True).click()
    card = page.locator('.card[data-series="debug/7"]')
    card.scroll_into_view_if_needed()  # what is not seen is not drawn
    expect(card.locator(".value")).to_have_text("0.25")
    page.get_by_role("tab", name="Spec").click()
    expect(page.get_by_text("All other settings are the defaults of the recipe")).to_be_visible()
    log(seeded, "gpt wide, long warm-up", {"debug/7": [(3, 0.125, 3.0)]})
    page.get_by_role("tab", name="Charts").click()
    card.scroll_into_view_if_needed()
    expect(card.locator(".value")).to_have_text("0.125")


def test_a_page_stays_where_it_is_while_its_run_trains(visit, dashboard) -> None:
    served, seeded = dashboard
    page = shown(visit.new_cold_page(), dashboard, "just launched")
    expect(page.locator(".charts .empty")).to_be_visible()
    seeded.start("just launched", 2)
    log(
        seeded,
        "just launched",
        {"rank0/step_time_s": [(1, 0.5, 1.0)], "samples_per_s": [(1, 5.0, 1.0)]},
        "probe",
    )
    served.service.run_changed(seeded.runs["just launched"])
    page.reload()
    expect(page.locator(".card").first).to_be_visible()
    for step in range(1, 9):
        points = {name: [(step, 1.0 / step, float(step))] for name in NAMES[: 3 + step // 2]}
        log(seeded, "just launched", points, start=step - 1, served=served)
        expect(page.locator(".figure").first).to_contain_text(str(step))
    expect(page.locator('.card[data-series~="train/lr"] canvas')).to_be_visible()
    assert shift(page) < MOST_SHIFT


def test_an_open_page_hears_what_happens_to_its_run(visit, dashboard) -> None:
    served, seeded = dashboard
    label = "gpt wide, long warm-up"
    page = shown(visit.new_page(), dashboard, label)
    stop = page.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_be_enabled()
    latest = page.get_by_role("link", name="Download latest checkpoint")
    before = latest.get_attribute("href")
    page.get_by_role("tab", name="Checkpoints").click()
    row = page.get_by_text("440", exact=True)
    expect(page.get_by_text("SHA-256", exact=True)).to_be_visible()
    expect(row).to_have_count(0)
    written = seeded.checkpoint(label, 440, served.service.files.root)
    served.service.checkpoint_stored(seeded.runs[label], written)
    expect(latest).not_to_have_attribute("href", before)
    expect(row).to_be_visible()
    page.get_by_role("tab", name="History").click()
    expect(page.get_by_text("When", exact=True)).to_be_visible()
    asked = page.get_by_text(re.compile("stop", re.IGNORECASE)).and_(page.locator("td, p"))
    before_stop = asked.count()
    served.service.stop(seeded.runs[label])
    expect(stop).to_be_disabled()
    expect(asked).not_to_have_count(before_stop)


def test_the_tab_of_an_ended_run_looks_again_only_when_there_is_news(visit, dashboard, monkeypatch) -> None:
    served, seeded = dashboard
    looks: list[str] = []
    read = ranks.ranks
    monkeypatch.setattr(ranks, "ranks", lambda store, run_id: looks.append(run_id) or read(store, run_id))
    page = shown(visit.new_page(), dashboard, "digits baseline")
    page.get_by_role("tab", name="Ranks").click()
    expect(page.get_by_text("No optimizer step of any rank was seen")).to_be_visible()

    def is_calm() -> bool:
        before = len(looks)
        page.wait_for_timeout(6000)
        return 1 <= before == len(looks)

    wait_for(is_calm, "six seconds in which nobody announced anything")
    before = len(looks)
    served.service.run_changed(seeded.runs["digits baseline"])
    wait_for(lambda: page.wait_for_timeout(500) or len(looks) > before, "the tab to hear of the news")


def log(
    seeded: Seed,
    label: str,
    series: dict[str, list[Point]],
    source: str = "events",
    start: int = 0,
    served: Browsed | None = None,
) -> None:
    """New points of a run, told to those who look at it."""
    attempt = attempt_queries.attempts(seeded.store, seeded.runs[label])[-1]
    node_id = seeded._node_of(label)
    path = f"{source} {','.join(series)}"[:200] if served is None else source
    batch = PointBatch(path=path, generation=0, start=start, end=start + 1, source=source, series=series)
    arrival = task_streams.points_arrived(seeded.store, node_id, attempt.fence, 0, batch)
    if served is not None:
        rows = [(Series(tag=t, source=source, node_rank=0), p, False) for t, p in arrival.series.items()]
        served.service.hub.publish(arrival.run_id, series_message(arrival.attempt, rows))


def loaded(page: Page) -> list[str]:
    """The series of which the browser has points."""
    return list(page.evaluate("[...[...window[Symbol.for('rankzero.live')].values()][0].store.series.keys()]"))


@pytest.mark.long
def test_after_resume_the_header_is_the_new_attempts_alone(visit, dashboard) -> None:
    page = shown(visit.new_page(), dashboard, "bad labels")
    expect(page.locator(".sentence")).to_contain_text("Rank 1 raised ValueError")
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_role("button", name="Resume it").click()
    expect(page.locator(".pill").first).not_to_have_text("failed")
    expect(page.locator(".figure", has_text="Elapsed")).to_contain_text("attempt 2")
    expect(page.locator(".figure", has_text="Step").first.locator("dd:not(.more)")).to_have_text("–")
    expect(page.locator(".figure", has_text="Train loss").locator("dd:not(.more)")).to_have_text("–")
    expect(page.locator(".sentence")).not_to_contain_text("ValueError")
    expect(page.get_by_text("Traceback of the first rank to fail")).to_have_count(0)
    assert page.locator(".track").get_attribute("aria-valuenow") in (None, "0")


@pytest.mark.long
def test_another_number_of_steps_in_the_resume_dialog_makes_a_new_run(visit, dashboard) -> None:
    page = shown(visit.new_page(), dashboard, "digits baseline")
    page.get_by_role("button", name="Resume", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Resume it")).to_be_visible()
    steps = dialog.get_by_role("textbox", name="Steps")
    steps.fill("many")
    expect(dialog.get_by_text("must be a whole number")).to_be_visible()
    expect(dialog.get_by_role("button", name="Launch the new run")).to_have_count(0)
    steps.fill("900")
    expect(dialog.locator("code")).to_contain_text("--max-steps=900")
    expect(dialog.locator("code")).to_contain_text("--resume=")
    before = page.url
    dialog.get_by_role("button", name="Launch the new run").click()
    expect(page).not_to_have_url(before)
    expect(page.locator(".pill").first).to_have_text("queued")
