"""The Nodes page in Chromium, with 212 nodes: cells, filters, keys, a node drained, a token made and revoked."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.views.nodes import details
from db.engine import Store
from db.nodes.node_queries import Occupant
from domain.views import CheckView, PreflightCell
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.components.clipboards import clipboard
from tests.dashboard.seeded_cluster import seed_cluster
from tests.end_to_end.browsers import Chromium
from tests.end_to_end.product import WAIT_S

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    service = opened(tmp_path_factory.mktemp("nodes") / "data")
    seed_cluster(service.store, service.clock(), 212)
    with browsed(service) as it:
        yield it


@pytest.fixture
def nodes(browser: Chromium, cluster: Browsed) -> Iterator[Page]:
    """The page, with every cell painted; at the end it may have had no error."""
    with browser.visit(1440) as visit:
        visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = visit.new_page()
        page.goto(f"{cluster.entrance.replace('/?', '/nodes?')}")
        expect(page.locator(".node")).to_have_count(212)
        yield page
        assert visit.errors == []


def node(page: Page, name: str) -> Locator:
    return page.locator(".node", has=page.locator(f'.name .text:text-is("{name}")'))


@pytest.mark.long
def test_a_large_cluster_is_filtered_grouped_and_walked_through(nodes: Page) -> None:
    expect(nodes.locator(".node .cell")).to_have_count(212 * 8)
    expect(nodes.locator(".summary")).to_have_text(re.compile("^212 nodes: 1.394 GPUs free, 254 in use by 7"))
    expect(nodes.locator(".notices")).to_contain_text("The disk of /data is nearly full: 3.1 GiB are free.")
    assert nodes.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    nodes.get_by_role("searchbox", name="Filter nodes").fill("rack=b1 gpu-02")
    expect(nodes.locator(".node")).to_have_count(5)
    expect(nodes.locator(".line .shown")).to_have_text("5 of 212 nodes")
    nodes.get_by_role("button", name="Show all").click()
    nodes.locator(".states [data-state=foreign]").click()
    expect(nodes.locator(".node .text")).to_have_text(["gpu-044", "gpu-045"])
    nodes.locator(".states [data-state=foreign]").click()
    nodes.locator(".runs button", has_text="wav2vec").click()
    expect(nodes.locator(".node")).to_have_count(4)
    nodes.get_by_role("button", name="Show all").click()
    nodes.get_by_label("Group nodes by").select_option("zone")
    expect(nodes.locator(".grid h3 span:first-child")).to_have_text(["zone north", "zone south"])
    nodes.get_by_label("Group nodes by").select_option("")

    node(nodes, "gpu-000").locator(".name").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft"):
        nodes.keyboard.press(key)
    nodes.keyboard.press("Enter")
    expect(nodes.locator(".node.selected .text")).to_have_text("gpu-006")
    expect(nodes.locator(".st-key-node_details h2")).to_have_text("gpu-006")


@pytest.mark.long
def test_a_node_is_drained_beside_its_cells_and_keeps_its_place(nodes: Page, cluster: Browsed) -> None:
    node(nodes, "gpu-100").locator(".name").click()
    details = nodes.locator(".st-key-node_details")
    expect(details).to_contain_text("rack=b4")
    details.get_by_role("button", name="Drain").click()
    expect(node(nodes, "gpu-100").locator(".cell.draining")).to_have_count(8)
    expect(node(nodes, "gpu-100")).to_have_class(re.compile("selected"))
    details.get_by_role("button", name="Undrain").click()
    expect(node(nodes, "gpu-100").locator(".cell.free")).to_have_count(8)
    assert not next(n for n in cluster.service.nodes() if n.name == "gpu-100").draining
    details.get_by_role("button", name="Close").click()
    expect(details).to_have_count(0)
    expect(nodes.locator(".node.selected")).to_have_count(0)

    cell = node(nodes, "gpu-021").locator(".cell").first
    cell.hover()
    expect(nodes.locator(".tip div")).to_contain_text(["gpu-021 · GPU 0", "small GPT · rank 0", "running"])
    cell.click()
    nodes.wait_for_url(re.compile(r"/run\?id=run0000003"))


@pytest.mark.long
def test_a_preflight_fills_as_nodes_answer_and_says_how_to_mend(
    nodes: Page, cluster: Browsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    red = PreflightCell(
        "clock", "gpu-2", None, "failed", "5.0 s ahead of the server", "Run `timedatectl set-ntp true`."
    )
    asked = [PreflightCell(row, f"gpu-{n}", None, "waiting", "", "") for row in ("alive", "clock") for n in range(3)]
    seen = [PreflightCell("alive", f"gpu-{n}", None, "ok", "answers", "") for n in range(3)]
    check = CheckView(1, 0.0, None, None, [f"gpu-{n}" for n in range(3)], asked, [])
    monkeypatch.setattr(cluster.service.preflights, "all", lambda: [check])
    nodes.get_by_role("tab", name="Preflight").click()
    expect(nodes.locator(".preflight td.waiting")).to_have_count(6)
    speeds = [[None, 11e9, 3e8], [None] * 3, [None] * 3]
    done = replace(check, cells=[*seen, *asked[3:5], red], ended_at=1.0, bandwidth=speeds)
    monkeypatch.setattr(cluster.service.preflights, "all", lambda: [done])
    expect(nodes.locator(".preflight .title.red")).to_contain_text("1 of 6 cells is red")
    expect(nodes.locator(".preflight .troubles li")).to_contain_text("gpu-2 · clock 5.0 s ahead of the server.")
    expect(nodes.locator(".preflight .fix code")).to_have_text("timedatectl set-ntp true")
    expect(nodes.locator(".preflight td.failed")).to_have_attribute("title", re.compile("^gpu-2 · clock"))
    expect(nodes.locator(".heat .link:not(.none)")).to_have_text(["11 GB/s", "300 MB/s", "11 GB/s", "300 MB/s"])


@pytest.mark.long
def test_a_token_is_made_copied_and_revoked(nodes: Page, cluster: Browsed) -> None:
    nodes.get_by_role("tab", name="Add a node").click()
    nodes.get_by_label("Name (optional)").fill("rack b9")
    nodes.get_by_role("button", name="Make a join token").click()
    command = nodes.locator(".st-key-join_command [data-testid=stCode] code").first
    expect(command).to_contain_text("rankzero worker --server http://")
    expect(nodes.locator(".st-key-join_command")).to_contain_text("no other machine can reach it")
    command.hover()
    nodes.locator(".st-key-join_command [data-testid=stCode] button").first.click()
    assert clipboard(nodes, command.inner_text()) == command.inner_text()
    (token,) = cluster.service.join_tokens.every()
    assert token.name == "rack b9" and command.inner_text().startswith(f"RANKZERO_TOKEN=rzjoin-{token.id}-")
    nodes.get_by_role("button", name="Revoke").click()
    expect(nodes.get_by_text("There is no valid token.")).to_be_visible()
    assert cluster.service.join_tokens.every()[0].revoked_at is not None


@pytest.mark.long
def test_a_dialog_answers_though_its_panel_refreshes_in_between(nodes: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A click waits with the panel's next refresh for the one that runs: Streamlit then runs both together."""
    sent: list[bytes | str] = []
    nodes.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    nodes.reload()
    node(nodes, "gpu-003").locator(".name").click()
    nodes.locator(".st-key-node_details").get_by_role("button", name="Remove").click()
    dialog = nodes.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Remove it")).to_be_visible()
    listed, held, released = details.occupants, Event(), Event()

    def hold(store: Store) -> list[Occupant]:
        held.set()
        assert released.wait(WAIT_S)
        return listed(store)

    monkeypatch.setattr(details, "occupants", hold)
    wait_in(nodes, held.is_set)
    refresh, refreshes = sent[-1], sent.count(sent[-1])
    dialog.get_by_role("button", name="Remove it").click()
    wait_in(nodes, lambda: sent.count(refresh) > refreshes)
    released.set()
    expect(dialog).to_contain_text("stop it first")


def wait_in(page: Page, is_so: Callable[[], bool]) -> None:
    """Wait for a condition of this process while the page's events are heard."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)


@pytest.mark.long
def test_a_node_is_removed_unless_a_run_is_there(nodes: Page, cluster: Browsed) -> None:
    """The last of these tests: from here on there are 211."""
    for name, answer in (("gpu-003", "stop it first"), ("gpu-211", None)):
        node(nodes, name).locator(".name").click()
        expect(nodes.locator(".st-key-node_details h2")).to_have_text(name)
        nodes.locator(".st-key-node_details").get_by_role("button", name="Remove").click()
        dialog = nodes.get_by_role("dialog")
        dialog.get_by_role("button", name="Remove it").click()
        if answer is not None:
            expect(dialog).to_contain_text(answer)
            dialog.get_by_role("button", name="Keep it").click()
            expect(dialog).to_have_count(0)
    expect(nodes.locator(".node")).to_have_count(211)
    expect(nodes.locator(".st-key-node_details")).to_have_count(0)
