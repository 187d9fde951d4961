"""Every page in Chromium, light and dark: its first paint, its console, and what axe-core finds wrong with it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest
import streamlit as st
from playwright.sync_api import Page, Route, expect

from dashboard.page_titles import IN_BAR, TITLES
from dashboard.views import page_list
from db.alerts import alerts
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_store import seed
from tests.dashboard.seeded_studies import seed_study
from tests.dashboard.seeded_sweeps import seed_sweep
from tests.dashboard.visits import Seen, axe_faults, signed_in
from tests.end_to_end.browsers import Chromium, Scheme, Visit

pytestmark = pytest.mark.real

TABS = ("logs", "ranks", "checkpoints", "history", "code", "spec")
MOST_SHIFT = 0.05
SHIFTS = """
window.shifts = 0;
new PerformanceObserver((list) => { for (const shift of list.getEntries()) shifts += shift.value; })
  .observe({type: 'layout-shift', buffered: true});
"""
WITHOUT_LIMIT = "real => { window.setTimeout = (f, ms, ...rest) => (ms === 10_000 ? 0 : real(f, ms, ...rest)); }"
"""A page on a machine that is slower than any limit."""
BACKGROUND = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 20, 28)"}
PAGES = {
    "runs": "/",
    "launch": "/launch",
    "studies": "/studies",
    "nodes": "/nodes",
    "alerts": "/alerts",
    "run": "/run?id={run}",
    "no such run": "/run?id=0000000000",
    "project": "/project?name=default",
    "node": "/nodes?node=gpu-1",
    "people": "/people",
    "audit": "/audit",
    "account": "/account",
    "login": "/login",
    "no such page": "/nonsense",
}
"""Their addresses; those of what the store is filled with are added with it."""
NAMES = [*PAGES, "failed run", "broken run", "study", "sweep"]


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    service = opened(tmp_path_factory.mktemp("pages") / "data")
    made = seed(service.store, service.clock(), service.settings.files_directory)
    PAGES["run"] = f"/run?id={made.runs['gpt wide, long warm-up']}"
    PAGES["failed run"] = f"/run?id={made.runs['bad labels']}"
    PAGES["study"] = f"/scaling?id={seed_study(made)}"
    PAGES["sweep"] = f"/sweeps?id={seed_sweep(made)}"
    PAGES["broken run"] = f"/run?id={made.runs['nan at once']}"
    alerts.create(service.store, "failed", "slack://a/b/c", None, service.clock())
    for tab in TABS:
        PAGES[tab] = f"{PAGES['run']}&tab={tab}"
    with browsed(service) as it:
        yield it


def opened_page(visit: Visit, dashboard: Browsed, name: str) -> Seen:
    """Open a page and wait until nothing more is asked for."""
    seen = Seen(visit.new_page())
    seen.listen()
    open_page(seen, dashboard, name)
    return seen


def open_page(seen: Seen, dashboard: Browsed, name: str) -> None:
    """Load it in that tab, which costs half of a new tab."""
    seen.page.goto(dashboard.url + PAGES[name])
    if name not in ("login", "no such page"):
        expect(seen.page.locator(".st-key-bar")).to_be_visible()
    expect(seen.page.locator("h1:visible").first).to_be_attached()
    seen.page.wait_for_load_state("networkidle")
    expect(seen.page.get_by_test_id("stSkeleton")).to_have_count(0)


def test_no_page_has_an_error_and_axe_finds_nothing(browser: Chromium, dashboard: Browsed) -> None:
    """All in one tab; the long tests open each in a tab of its own."""
    with signed_in(browser, dashboard) as visit:
        seen = Seen(visit.new_page())
        seen.listen()
        for name in NAMES:
            open_page(seen, dashboard, name)
            assert_whole(seen)


@pytest.mark.long
@pytest.mark.parametrize("name", [*NAMES, *TABS])
def test_a_page_has_no_error_and_axe_finds_nothing(browser: Chromium, dashboard: Browsed, name: str) -> None:
    with signed_in(browser, dashboard) as visit:
        assert_whole(opened_page(visit, dashboard, name))


def assert_whole(seen: Seen) -> None:
    """It has its title, all that it shows is of now, and neither the browser nor axe complains."""
    assert seen.page.title().endswith("Rankzero")
    expect(seen.page.locator("[data-stale=true]")).to_have_count(0)
    assert axe_faults(seen.page) == [], seen.page.url
    assert seen.complaints == []


@pytest.mark.long
def test_no_tab_of_a_run_has_an_error_and_axe_finds_nothing(browser: Chromium, dashboard: Browsed) -> None:
    """All in one visit; the long tests open each by its address."""
    with signed_in(browser, dashboard) as visit:
        seen = opened_page(visit, dashboard, "run")
        for tab in TABS:
            seen.page.get_by_role("tab", name=tab.capitalize()).click()
            expect(seen.page).to_have_url(re.compile(rf"&tab={tab}$"))
            settled(seen.page)
            assert axe_faults(seen.page) == [], tab
        assert seen.complaints == []


def settled(page: Page) -> None:
    """Wait until the page's script has run and all it shows is there."""
    expect(page.locator(".stApp[data-test-script-state=notRunning]")).to_be_attached()
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
    expect(page.locator("[data-stale=true]")).to_have_count(0)


def test_a_telephone_shows_the_menu_and_the_button_that_launches(browser: Chromium, dashboard: Browsed) -> None:
    with signed_in(browser, dashboard, width=390) as visit:
        page = opened_page(visit, dashboard, "launch").page
        for link in (TITLES[address] for address in IN_BAR):
            expect(page.locator(".st-key-bar").get_by_role("link", name=link)).to_be_in_viewport(ratio=1)
        expect(page.get_by_role("button", name="Sign out")).to_be_in_viewport(ratio=1)
        launch = page.get_by_role("button", name="Launch", exact=True)
        expect(launch).to_be_in_viewport(ratio=1)
        page.locator(".st-key-launch_more").scroll_into_view_if_needed()
        expect(launch).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_title_and_frame_are_there_before_any_script(
    browser: Chromium, dashboard: Browsed, scheme: Scheme
) -> None:
    with signed_in(browser, dashboard, scheme) as visit:
        page = visit.new_page()
        page.route("**/*.js*", lambda route: route.abort())
        page.goto(f"{dashboard.url}/launch")
        assert page.title() == "Launch · Rankzero"
        assert background(page, "#frame") == BACKGROUND[scheme]
        expect(page.get_by_role("link", name="Nodes")).to_be_visible()
        expect(page.locator("[aria-current=page]")).to_have_text("Launch")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_streamlit_begins_with_our_colours(browser: Chromium, dashboard: Browsed, scheme: Scheme) -> None:
    with signed_in(browser, dashboard, scheme) as visit:
        page = visit.new_page()
        page.route_web_socket("**/_stcore/stream", lambda socket: None)  # opens, and says nothing
        page.goto(f"{dashboard.url}/launch")
        expect(page.locator(".stApp")).to_be_attached()
        assert background(page, ".stApp") == BACKGROUND[scheme]


def test_a_page_shows_itself_when_all_of_it_is_there(browser: Chromium, dashboard: Browsed) -> None:
    with signed_in(browser, dashboard, width=390) as visit:
        page, held, released = visit.new_page(), list[Route](), threading.Event()
        page.add_init_script(f"({WITHOUT_LIMIT})(setTimeout)")
        page.add_init_script(SHIFTS)
        page.route("**/Selectbox.*.js", lambda route: route.continue_() if released.is_set() else held.append(route))
        page.goto(f"{dashboard.url}/launch")
        expect(page.get_by_test_id("stSkeleton").first).to_be_attached()
        expect(page.locator("#frame")).to_be_visible()
        expect(page.locator(".st-key-launch_now")).to_be_hidden()
        released.set()
        for route in held:
            route.continue_()
        expect(page.locator(".st-key-launch_now")).to_be_visible()
        expect(page.locator("#frame")).to_be_hidden()
        page.wait_for_load_state("networkidle")
        assert page.evaluate("shifts") < MOST_SHIFT


def test_a_page_that_takes_long_shows_a_sign_of_loading_and_no_half_of_itself(
    browser: Chromium, dashboard: Browsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = threading.Event()

    def in_halves() -> None:
        st.header("First half")
        st.caption("Small print")
        built.wait()
        st.header("Second half")

    monkeypatch.setitem(page_list.SHOWN, "alerts", ("notifications", in_halves))
    with signed_in(browser, dashboard) as visit:
        page = visit.new_page()
        page.add_init_script(f"({WITHOUT_LIMIT})(setTimeout)")
        page.goto(f"{dashboard.url}/launch")
        sign, bar = page.get_by_role("progressbar", name="Loading"), page.locator(".st-key-bar")
        expect(page.locator("[data-settled] .st-key-launch_now")).to_be_visible()
        expect(sign).to_be_hidden()
        bar.get_by_role("link", name="Alerts").click()
        try:
            expect(sign).to_be_visible()
            expect(page.get_by_text("First half")).to_be_attached()
            for text in ("First half", "Small print"):
                expect(page.get_by_text(text)).to_be_hidden()
            expect(bar.get_by_role("link", name="Nodes")).to_be_visible()
        finally:
            built.set()
        expect(page.get_by_text("First half")).to_be_visible()
        expect(page.get_by_text("Second half")).to_be_visible()
        expect(sign).to_be_hidden()


def background(page: Page, selector: str) -> str:
    return str(page.locator(selector).evaluate("element => getComputedStyle(element).backgroundColor"))


@pytest.mark.long
def test_old_and_unknown_addresses(browser: Chromium, dashboard: Browsed) -> None:
    with signed_in(browser, dashboard) as visit:
        page = visit.new_page()
        page.goto(f"{dashboard.url}/runs?state=failed")
        expect(page).to_have_url(f"{dashboard.url}/?state=failed")
        page.goto(f"{dashboard.url}/launch/")
        expect(page).to_have_url(f"{dashboard.url}/launch")
        for path in ("/nonsense", "/launch/nonsense", "/<b>x</b>"):
            answer = page.goto(dashboard.url + path)
            assert answer is not None and answer.status == 404
            expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
            expect(page.locator("main code")).to_have_text(path)
        page.get_by_role("link", name="Launch").click()
        runs = page.locator(".st-key-bar").get_by_role("link", name="Runs")
        with visit.context.expect_page() as tab:
            runs.click(modifiers=["ControlOrMeta"])
        expect(tab.value).to_have_url(f"{dashboard.url}/")
        runs.click()
        expect(page).to_have_url(f"{dashboard.url}/")


def test_signing_out_leads_every_tab_to_the_login(browser: Chromium, dashboard: Browsed) -> None:
    with signed_in(browser, dashboard) as visit:
        here, there = opened_page(visit, dashboard, "launch"), opened_page(visit, dashboard, "nodes")
        here.page.get_by_role("button", name="Sign out").click()
        for seen in (here, there):
            expect(seen.page).to_have_url(f"{dashboard.url}/login?signed-out")
            expect(seen.page.get_by_role("status")).to_contain_text("You are signed out")
        there.page.go_back()  # the page as it was would show what was on it
        expect(there.page).to_have_url(re.compile(r"/nodes$"))
        expect(there.page.get_by_label("Token")).to_be_visible()
        assert there.page.locator(".stApp").count() == 0
        answer = here.page.goto(f"{dashboard.url}/nodes")
        assert answer is not None and answer.status == 401
        assert answer.headers["cache-control"] == "no-store"
        here.page.get_by_label("Token").fill(dashboard.service.credentials.user)
        here.page.get_by_role("button", name="Sign in").click()
        expect(here.page).to_have_url(re.compile(r"/nodes$"))
        with here.page.expect_navigation() as reloaded:  # as the browser shows a page that it has kept
            here.page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
        assert reloaded.value.headers["cache-control"] == "no-store"
