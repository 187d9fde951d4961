"""What takes something from others asks in Chromium with names and counts, and does it to what was shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from db import acting
from db.nodes.node_reports import register_node
from db.runs import run_requests
from domain.people.rights import rights_of_owner
from domain.people.roles import Role
from domain.spec import RunSpec
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.persons import person
from tests.dashboard.visits import axe_faults, look, signed_in
from tests.db.cluster import facts
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    service = opened(tmp_path_factory.mktemp("taking") / "data")
    register_node(service.store, facts(slots=8), None, service.clock())
    for name in ("ana", "ben", "cy"):
        person(service, name, Role.MEMBER)
    with browsed(service) as it:
        with acting.acting(rights_of_owner()):
            service.people.set_role("ana", "viewer", "lab-secret")
            service.people.set_privacy("lab-secret", True)
        yield it


def launched(dashboard: Browsed, name: str, title: str) -> str:
    rights = dashboard.service.identities.rights(name)
    assert rights is not None
    with acting.acting(rights):
        spec = RunSpec(target="image_classifier", gpus_per_node=1, name=title)
        return run_requests.submit(dashboard.service.store, spec, dashboard.service.clock())


def private_projects(dashboard: Browsed) -> list[str]:
    with acting.acting(rights_of_owner()):
        return [one.name for one in dashboard.service.people.projects() if one.is_private]


def choose_project(page: Page, name: str) -> Locator:
    """Choose a project; returns its toggle."""
    page.locator(".st-key-people_project input").click()
    page.get_by_role("option", name=name, exact=True).click()
    toggle = page.locator(f".st-key-project_private_{name}")
    expect(toggle.get_by_text("Private: only its members")).to_be_visible()
    return toggle


def test_project_that_is_shown_is_the_one_made_private(browser: Chromium, dashboard: Browsed) -> None:
    launched(dashboard, "ben", "warm-up")
    with signed_in(browser, dashboard) as visit:
        page = look(visit, dashboard, "/people").page
        toggle = choose_project(page, "lab-secret")
        expect(toggle.get_by_role("switch")).to_be_checked()
        assert private_projects(dashboard) == ["lab-secret"]
        toggle = choose_project(page, "default")
        expect(toggle.get_by_role("switch")).not_to_be_checked()
        toggle.locator("label").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("default: 3 people (ana, ben and cy) lose sight of 1 run.")).to_be_visible()
        assert axe_faults(page) == []
        dialog.get_by_role("button", name="Keep it open").click()
        expect(dialog).to_have_count(0)
        expect(toggle.get_by_role("switch")).not_to_be_checked()
        assert private_projects(dashboard) == ["lab-secret"]
        toggle.locator("label").click()
        dialog.get_by_role("button", name="Make it private").click()
        expect(toggle.get_by_role("switch")).to_be_checked()
        assert private_projects(dashboard) == ["default", "lab-secret"]
        toggle.locator("label").click()
        expect(toggle.get_by_role("switch")).not_to_be_checked()


def test_person_whose_run_is_stopped_reads_who_did_it_and_why(browser: Chromium, dashboard: Browsed) -> None:
    run_id = launched(dashboard, "ben", "long-train")
    with signed_in(browser, dashboard) as visit:
        page = look(visit, dashboard, f"/run?id={run_id}").page
        page.locator(f".st-key-stop_{run_id}").get_by_role("button").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("It is ben's run")).to_be_visible()
        dialog.get_by_label("Reason (optional)").fill("needed for the demo")
        dialog.get_by_role("button", name="Stop the run").click()
        expect(dialog).to_have_count(0)
    with signed_in(browser, dashboard, user="ben") as visit:
        page = look(visit, dashboard, "/nodes").page
        notice = page.locator('[class*="st-key-notice_"]').filter(has_text="owner stopped your run long-train")
        expect(notice.first).to_contain_text("needed for the demo")
        assert axe_faults(page) == []
        notice.first.get_by_role("button", name="Close").click()
        expect(notice).to_have_count(0)


def test_removing_a_person_asks_what_becomes_of_their_runs(browser: Chromium, dashboard: Browsed) -> None:
    launched(dashboard, "cy", "goes-on")
    with signed_in(browser, dashboard) as visit:
        page = look(visit, dashboard, "/people").page
        page.locator(".st-key-person_remove_cy").get_by_role("button").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("cy has 1 live run.")).to_be_visible()
        dialog.get_by_text("Give them to").click()
        heirs = dialog.locator(".st-key-person_heir_cy input")
        heirs.click()
        page.get_by_role("option", name="ben", exact=True).click()
        assert axe_faults(page) == []
        dialog.get_by_role("button", name="Remove", exact=True).click()
        expect(dialog).to_have_count(0)
        expect(page.locator(".st-key-person_remove_cy")).to_have_count(0)
