"""An empty store in Chromium: each page says what to do next, and the form fits screens of any width."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.visits import look, signed_in, whole
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    with browsed(opened(tmp_path_factory.mktemp("empty") / "data")) as it:
        yield it


@pytest.mark.parametrize(
    ("address", "next_step"),
    [
        ("/", "Launch the first run"),
        pytest.param("/launch", "No node is connected", marks=pytest.mark.long),
        pytest.param("/nodes", "Make a join token", marks=pytest.mark.long),
    ],
)
def test_an_empty_store_says_what_to_do_next(browser: Chromium, empty: Browsed, address: str, next_step: str) -> None:
    with signed_in(browser, empty) as visit:
        seen = look(visit, empty, address)
        expect(seen.page.get_by_text(next_step).first).to_be_visible()
        whole(seen.page)
        assert seen.complaints == []


@pytest.mark.long
def test_the_form_uses_a_wide_screen_and_cuts_nothing_off(browser: Chromium, empty: Browsed) -> None:
    with signed_in(browser, empty) as visit:
        page = look(visit, empty, "/launch").page
        for width in (1280, 1920, 2560, 3840):
            page.set_viewport_size({"width": width, "height": 900})
            expect(page.get_by_role("radio", name="Upload")).to_be_in_viewport(ratio=1)
            widest = page.locator(".st-key-launch_how").bounding_box()
            assert widest is not None and widest["width"] < 1300, width
            choices = page.locator("[data-testid=stButtonGroup] [role=radiogroup]").first
            assert choices.evaluate("group => group.scrollWidth <= group.clientWidth + 1"), width
