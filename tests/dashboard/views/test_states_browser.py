"""Pages in Chromium in the states that are seldom: a store that cannot be written, nodes of other versions, unknown
trainings, open dialogs; each in both themes, with axe-core."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from sqlalchemy import insert

from db.alerts import alerts
from db.models import Node
from db.trouble import Trouble
from domain.protocol import PROTOCOL
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_cluster import Machines, a_preflight
from tests.dashboard.seeded_store import Seed, seed
from tests.dashboard.visits import look, look_at, signed_in, whole
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.long

UNKNOWN = "unknownrun"


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browsed, Seed]]:
    """Runs in every state; nodes of an older and a newer version, and one that trains what the store does not know."""
    service = opened(tmp_path_factory.mktemp("full") / "data")
    seeded = seed(service.store, service.clock(), service.settings.files_directory)
    machines = Machines(service.clock())
    machines.gpu(7, protocol=PROTOCOL - 1)
    machines.gpu(8, protocol=PROTOCOL + 1)
    machines.gpu(9, unknown_attempts=[held(["GPU-0009-0"])])
    with service.store.write() as session:
        for row in machines.rows:
            session.execute(insert(Node), [row])
    service.preflights.all = a_preflight  # type: ignore[method-assign]
    with browsed(service) as it:
        yield it, seeded


def held(devices: list[str]) -> dict[str, Any]:
    """An attempt of another store, as a node tells of it."""
    return {
        "run_id": UNKNOWN, "attempt": 1, "fence": 77, "uid": "ff00", "store": "0123456789abcdef", "devices": devices,
        "folder": f"/data/runs/{UNKNOWN}/attempts/1/node0",
    }  # fmt: skip


def test_every_page_says_that_nothing_can_be_stored(
    browser: Chromium, full: tuple[Browsed, Seed], monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard, seeded = full
    monkeypatch.setattr(type(dashboard.service), "trouble", Trouble.FULL)
    with signed_in(browser, dashboard) as visit:
        page = visit.new_page()
        for address in ("/", "/launch", "/nodes", f"/run?id={seeded.runs['bad labels']}"):
            look_at(page, dashboard, address)
            expect(page.get_by_role("alert").first).to_contain_text(Trouble.FULL)
            whole(page)


def details(page: Page) -> Locator:
    """The panel of one node."""
    return page.locator(".st-key-node_details")


def test_nodes_of_other_versions_say_what_is_to_be_upgraded(browser: Chromium, full: tuple[Browsed, Seed]) -> None:
    dashboard, _ = full
    with signed_in(browser, dashboard) as visit:
        page = look(visit, dashboard, "/nodes").page
        expect(page.locator(".cells .summary")).to_contain_text("16 to upgrade")
        expect(page.locator(".cells .summary")).not_to_contain_text("draining")
        expect(page.locator(".node .cell.to-upgrade")).to_have_count(16)
        expect(page.locator(".node .mark.to-upgrade")).to_have_text(["↑", "↑"])
        page.locator(".states [data-state='to upgrade']").click()
        expect(page.locator(".node .text")).to_have_text(["gpu-007", "gpu-008"])
        whole_at(page, 390, 1280)
        for name, badge, advice in (
            ("gpu-007", "to upgrade", "Upgrade its worker"),
            ("gpu-008", "newer than this dashboard", "Upgrade this dashboard"),
        ):
            look_at(page, dashboard, f"/nodes?node={name}")
            expect(details(page)).to_contain_text(badge)
            expect(details(page)).to_contain_text(advice)
            whole_at(page, 390, 1280)


def test_alerts_are_a_short_list_on_a_telephone(browser: Chromium, full: tuple[Browsed, Seed]) -> None:
    dashboard, _ = full
    store = dashboard.service.store
    for rule in ("failed", "hung", "finished"):
        alerts.create(store, rule, f"slack://one/two/{rule}", None, dashboard.service.clock())
    with signed_in(browser, dashboard, width=390) as visit:
        page = look(visit, dashboard, "/alerts").page
        rows = page.locator(".st-key-alert_list [data-testid=stHorizontalBlock]")
        expect(rows).to_have_count(3)
        assert all(row["height"] < 140 for row in (rows.nth(at).bounding_box() or {} for at in range(3)))
        for name in ("Test", "Remove"):
            expect(rows.first.get_by_role("button", name=name)).to_be_visible()
        whole_at(page, 390, 1280)


def whole_at(page: Page, *widths: int) -> None:
    """Whole at each width; a page follows the window, and a visit for each would cost seconds."""
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        whole(page)


def test_an_unknown_training_is_ended_after_a_question(browser: Chromium, full: tuple[Browsed, Seed]) -> None:
    dashboard, _ = full
    with signed_in(browser, dashboard) as visit:
        page = look(visit, dashboard, "/nodes?node=gpu-009").page
        expect(details(page)).to_contain_text("this dashboard's store does not know it")
        details(page).get_by_role("button", name=f"End run {UNKNOWN} here").click()
        whole(page)
        page.get_by_role("dialog").get_by_role("button", name="Keep it running").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert not ends_wished(dashboard)
        details(page).get_by_role("button", name=f"End run {UNKNOWN} here").click()
        page.get_by_role("dialog").get_by_role("button", name="End it").click()
        expect(details(page).get_by_role("button", name=f"Ending run {UNKNOWN}")).to_be_disabled()
        assert ends_wished(dashboard)
        whole(page)


def ends_wished(dashboard: Browsed) -> bool:
    """Whether gpu-009 is asked to end what it trains."""
    node = next(node for node in dashboard.service.nodes() if node.name == "gpu-009")
    return bool(node.unknown[0]["ending"])


def test_the_tabs_of_the_nodes_page(browser: Chromium, full: tuple[Browsed, Seed]) -> None:
    dashboard, _ = full
    with signed_in(browser, dashboard) as visit:
        seen = look(visit, dashboard, "/nodes")
        for tab, part in (("Preflight", ".preflight .heat"), ("Add a node", ".st-key-nodes_tab")):
            seen.page.get_by_role("tab", name=tab).click()
            if part.startswith(".preflight"):
                expect(seen.page.locator(part)).to_be_visible()
            else:
                expect(seen.page.get_by_role("button", name="Make a join token")).to_be_visible()
            whole(seen.page)
        assert seen.complaints == []


@pytest.mark.parametrize(
    ("label", "button"),
    [
        ("gpt wide, long warm-up", "Stop"),
        ("bad labels", "Resume"),
        ("digits baseline", "Delete"),
    ],
)
def test_the_dialogs_of_a_run(browser: Chromium, full: tuple[Browsed, Seed], label: str, button: str) -> None:
    dashboard, seeded = full
    with signed_in(browser, dashboard) as visit:
        seen = look(visit, dashboard, f"/run?id={seeded.runs[label]}")
        if button == "Delete":
            seen.page.get_by_role("button", name="More").click()
            seen.page.get_by_role("menuitem", name=button).click()
        else:
            seen.page.get_by_role("button", name=button, exact=True).click()
        expect(seen.page.get_by_role("dialog")).to_be_visible()
        whole(seen.page)
        assert seen.complaints == []


def test_the_dialog_that_removes_a_node(browser: Chromium, full: tuple[Browsed, Seed]) -> None:
    dashboard, _ = full
    with signed_in(browser, dashboard) as visit:
        page = look(visit, dashboard, "/nodes?node=gpu-007").page
        details(page).get_by_role("button", name="Remove").click()
        expect(page.get_by_role("dialog")).to_contain_text("Its past runs stay in the history")
        whole(page)


def test_a_field_of_the_form_is_explained_while_it_has_the_focus(browser: Chromium, full: tuple[Browsed, Seed]) -> None:
    dashboard, _ = full
    with signed_in(browser, dashboard) as visit:
        seen = look(visit, dashboard, "/launch")
        expect(seen.page.locator(".stApp[data-test-script-state=notRunning]")).to_be_attached()
        help_text = seen.page.get_by_text("Rate for one process, before the scaling rule.")
        expect(help_text).to_be_hidden()
        place = seen.page.get_by_role("textbox", name="Steps", exact=True).bounding_box()
        seen.page.get_by_role("textbox", name="Learning rate").focus()
        expect(help_text).to_be_visible()
        assert seen.page.get_by_role("textbox", name="Steps", exact=True).bounding_box() == place
        seen.page.keyboard.press("Tab")
        expect(seen.page.get_by_role("textbox", name="Warm-up steps")).to_be_focused()
        expect(help_text).to_be_hidden()
        expect(seen.page.get_by_test_id("stTooltipIcon")).to_have_count(0)
        whole(seen.page)


def test_pages_open_at_all_widths(browser: Chromium, full: tuple[Browsed, Seed]) -> None:
    dashboard, seeded = full
    with signed_in(browser, dashboard) as visit:
        page = visit.new_page()
        for address in ("/", "/launch", "/nodes", f"/run?id={seeded.runs['bad labels']}"):
            page.set_viewport_size({"width": 390, "height": 900})
            look_at(page, dashboard, address)
            expect(page).to_have_url(re.compile(re.escape(address)))
            whole_at(page, 390, 2560)
