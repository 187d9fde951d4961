"""In Chromium: to a project and back, and a link that somebody without a login opens until it is revoked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_store import Seed, seed
from tests.dashboard.visits import axe_faults, look_at, signed_in, whole
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    with browsed(opened(tmp_path_factory.mktemp("project") / "data")) as it:
        yield it


@pytest.fixture(scope="module")
def made(dashboard: Browsed) -> Seed:
    service = dashboard.service
    return seed(service.store, service.clock(), service.settings.files_directory)


@pytest.fixture
def page(browser: Chromium, dashboard: Browsed, made: Seed) -> Iterator[Page]:
    with signed_in(browser, dashboard) as visit:
        yield visit.new_page()
        assert visit.errors == []


@pytest.mark.long
def test_a_project_is_opened_from_its_name_in_the_list_and_on_a_run(page: Page, dashboard: Browsed, made: Seed) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    look_at(page, dashboard, "/")
    page.get_by_label("Select digits baseline").check()
    page.get_by_role("link", name="vision", exact=True).first.click()
    expect(page.get_by_role("heading", name="vision")).to_be_visible()
    assert page.url.endswith("/project?name=vision")
    figures = page.locator("section.project")
    expect(figures).to_contain_text("Best run")
    expect(figures.locator("li .bar i").first).to_be_visible()
    expect(page.get_by_role("link", name="bad labels")).to_have_count(1)
    expect(page.get_by_role("link", name="digits baseline")).to_have_count(0)
    expect(page.get_by_role("group", name="Selected runs")).to_be_hidden()  # no run of another project is
    whole(page)
    page.set_viewport_size({"width": 390, "height": 900})
    whole(page)
    figures.get_by_role("link").first.click()
    expect(page.locator(".run-header .state, .run-header .pill").first).to_be_visible()
    assert "/run?id=" in page.url
    page.locator(".run-header").get_by_role("link", name="vision").click()
    expect(page.get_by_role("heading", name="vision")).to_be_visible()


@pytest.mark.long
def test_an_unknown_project_says_so(page: Page, dashboard: Browsed) -> None:
    look_at(page, dashboard, "/project?name=nothing")
    expect(page.get_by_role("heading", name="There is no such project")).to_be_visible()
    assert axe_faults(page) == []


@pytest.mark.parametrize(
    "address",
    ["/run?id={one}", pytest.param("/compare?runs={one},{other}", marks=pytest.mark.long)],
)
def test_a_link_is_made_opened_without_a_login_and_revoked(
    browser: Chromium, dashboard: Browsed, made: Seed, address: str
) -> None:
    ids = {"one": made.runs["digits baseline"], "other": made.runs["bad labels"]}
    with signed_in(browser, dashboard) as visit:
        page = visit.new_page()
        look_at(page, dashboard, address.format(**ids))
        page.get_by_role("button", name="Share").click()
        page.get_by_role("button", name="Make a link").click()
        expect(page.get_by_text("copy it now, it will not be shown again")).to_be_visible()
        code = page.get_by_test_id("stPopoverBody").locator("pre code")
        link = code.inner_text().replace("\n", "")
        assert link.startswith(f"{dashboard.url}/shared/")
        visit.context.clear_cookies()
        stranger = visit.new_page()
        stranger.goto(link)
        expect(stranger.get_by_text("digits baseline").first).to_be_visible()
        expect(stranger.locator("svg.swatch, figure svg").first).to_be_visible()
        assert (stranger.get_by_text("bad labels").count() > 0) == ("compare" in address)
        assert width_of(stranger) <= 390
        stranger.goto(dashboard.url + "/")
        expect(stranger.get_by_label("Token")).to_be_visible()
    with signed_in(browser, dashboard) as visit:
        page = visit.new_page()
        look_at(page, dashboard, address.format(**ids))
        page.get_by_role("button", name="Share").click()
        page.get_by_role("button", name="Revoke").click()
        expect(page.get_by_role("button", name="Revoke")).to_have_count(0)
        answer = page.request.get(link)
        assert answer.status == 410 and "was revoked" in answer.text()


def width_of(page: Page) -> float:
    """The width of the page on a telephone; it runs no script, so axe cannot look at it."""
    page.set_viewport_size({"width": 390, "height": 900})
    box = page.locator("body").bounding_box()
    assert box is not None
    return box["width"]
