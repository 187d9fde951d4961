"""Several people's runs: each with its name, one's own by one click, and a deletion undone where it was made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from sqlalchemy import update

from db import acting
from db.models import Run, User
from db.runs import shared_links
from domain.people.roles import Role
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.persons import person
from tests.dashboard.seeded_store import Seed, seed
from tests.dashboard.visits import signed_in, whole
from tests.end_to_end.browsers import Chromium
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    with browsed(opened(tmp_path_factory.mktemp("people") / "data")) as it:
        yield it


@pytest.fixture(scope="module")
def made(dashboard: Browsed) -> Seed:
    """Runs of the owner, and one of ana."""
    seeded = seed(dashboard.service.store, dashboard.service.clock())
    with dashboard.service.store.write() as session:
        session.add(User(name="ana", role="member", created_at=1.0))
        session.execute(update(Run).values(by="owner"))
        session.execute(update(Run).where(Run.id == seeded.runs["nan at once"]).values(by="ana"))
    return seeded


@pytest.fixture
def page(browser: Chromium, dashboard: Browsed) -> Iterator[Page]:
    """The page, signed in; at the end it may have had no error."""
    with browser.visit(1440) as visit:
        page = visit.new_page()
        page.goto(dashboard.entrance)
        yield page
        assert visit.errors == []


def picture(page: Page, name: str) -> None:
    """Keep a picture where somebody asks for it."""
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def names(page: Page, name: str) -> Locator:
    return page.locator("tbody td.name a").filter(has_text=name)


def test_each_run_has_its_person_and_mine_leaves_ones_own(page: Page, made: Seed) -> None:
    expect(page.get_by_role("columnheader", name="By")).to_be_visible()
    row = page.locator("tbody tr").filter(has_text="nan at once")
    expect(row.get_by_text("ana", exact=True)).to_be_visible()
    picture(page, "all")
    page.get_by_role("button", name="Mine").click()
    expect(row).to_have_count(0)
    expect(names(page, "bad labels")).to_be_visible()
    expect(page).to_have_url(re.compile("mine=1"))
    picture(page, "mine")
    page.reload()
    expect(names(page, "bad labels")).to_be_visible()
    expect(row).to_have_count(0)


@pytest.mark.parametrize(("role", "advice"), [("member", "Launch your first run"), ("viewer", "As a viewer")])
def test_mine_of_somebody_who_never_launched_says_so(
    browser: Chromium, dashboard: Browsed, made: Seed, role: str, advice: str
) -> None:
    with dashboard.service.store.write() as session:
        session.merge(User(name="eve", role=role, created_at=1.0))
    dashboard.service.identities.forget()
    with signed_in(browser, dashboard, user="eve") as visit:
        page = visit.new_page()
        page.goto(f"{dashboard.url}/?mine=1")
        expect(page.get_by_text("You have not launched a run")).to_be_visible()
        expect(page.get_by_text(advice)).to_be_visible()
        expect(page.get_by_role("link", name="Launch your first run")).to_have_count(int(role == "member"))
        whole(page)
        picture(page, f"mine-{role}")
        page.get_by_role("button", name="Show all runs").click()
        expect(names(page, "nan at once")).to_be_visible()


def test_a_deletion_is_undone_on_the_page_it_leads_to(page: Page, dashboard: Browsed, made: Seed) -> None:
    run_id = made.runs["bad labels"]
    page.goto(f"{dashboard.url}/run?id={run_id}")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.get_by_text("in which it can be restored")).to_be_visible()
    picture(page, "delete")
    page.get_by_role("button", name="Delete the run").click()
    expect(page.get_by_text("was deleted. Can be restored until")).to_be_visible()
    expect(names(page, "bad labels")).to_have_count(0)
    picture(page, "deleted")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("was deleted. Can be restored until")).to_have_count(0)
    expect(names(page, "bad labels")).to_be_visible()
    dashboard.service.delete(run_id)
    page.reload()
    page.get_by_role("button", name="Deleted").click()
    expect(page.get_by_role("dialog").get_by_text("bad labels")).to_be_visible()
    picture(page, "list")
    page.get_by_role("button", name="Restore").click()
    expect(names(page, "bad labels")).to_be_visible()


def test_many_deleted_runs_are_brought_back_by_the_message_that_tells_it(page: Page, made: Seed) -> None:
    for name in ("bad labels", "gpt wide, long warm-up"):
        page.get_by_label(f"Select {name}").check()
    selection = page.get_by_role("group", name="Selected runs")
    selection.get_by_role("button", name="Delete").click()
    selection.get_by_role("button", name="Delete 2").click()
    expect(names(page, "bad labels")).to_have_count(0)
    expect(selection.get_by_role("status")).to_contain_text("1 deleted")
    expect(selection.get_by_text("1 refused")).to_be_visible()  # the other still runs, and stays
    expect(page.get_by_role("button", name="Deleted", exact=True)).to_be_visible()
    picture(page, "many")
    selection.get_by_role("button", name="Undo").click()
    expect(selection.get_by_role("status")).to_contain_text("1 restored")
    expect(selection.get_by_role("button", name="Undo")).to_be_hidden()
    expect(page.get_by_role("button", name="Deleted", exact=True)).to_have_count(0)
    for name in ("bad labels", "gpt wide, long warm-up"):
        expect(page.get_by_label(f"Select {name}")).to_be_visible()


def test_a_run_and_its_history_say_whose_they_are(page: Page, dashboard: Browsed, made: Seed) -> None:
    page.goto(f"{dashboard.url}/run?id={made.runs['nan at once']}&tab=history")
    expect(page.locator(".run-header .by")).to_have_text("by ana")
    expect(page.get_by_role("columnheader", name="Who")).to_be_visible()
    picture(page, "history")


def test_rows_and_a_long_name_stay_whole_on_a_telephone(browser: Chromium, dashboard: Browsed, made: Seed) -> None:
    name, run_id = (
        person(dashboard.service, "maximiliane.brandenburg-schoenefeld", Role.ADMIN),
        made.runs["nan at once"],
    )
    with acting.acting(dashboard.service.identities.person(name)):
        dashboard.service.secrets.set("HF_TOKEN", "hf_AbCdEfGhIjKl", None)
        shared_links.make(dashboard.service.store, [run_id], 7, dashboard.service.clock())
    with signed_in(browser, dashboard, width=390, user=name) as visit:
        page = visit.new_page()
        page.goto(f"{dashboard.url}/run?id={run_id}")
        page.get_by_role("button", name="Share").click()
        stand_in_one_row(page.get_by_text(f"by {name}"), page.get_by_role("button", name="Revoke"))
        menu = page.locator(".st-key-bar_person").get_by_test_id("stPopoverButton").bounding_box()
        assert menu and menu["x"] + menu["width"] <= 390
        page.goto(f"{dashboard.url}/account")
        secret = page.locator(".st-key-secret_list")
        stand_in_one_row(secret.get_by_text(f"by {name}"), secret.get_by_role("button", name="Remove"))


def stand_in_one_row(words: Locator, button: Locator) -> None:
    """The button is to the right of the words, and beside them."""
    expect(words).to_be_visible()
    expect(button).to_be_visible()

    def is_so() -> bool:
        left, right = words.bounding_box(), button.bounding_box()
        if left is None or right is None:
            return False
        is_beside = left["y"] < right["y"] + right["height"] / 2 < left["y"] + left["height"]
        return is_beside and left["x"] + left["width"] <= right["x"]

    wait_for(is_so, "the button to stand beside the words")
