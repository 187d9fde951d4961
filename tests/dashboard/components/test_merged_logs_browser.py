"""All ranks and both streams in one view in Chromium, served as they are, while the run trains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.api.runs.rank_logs import PIECES, write_logs
from tests.dashboard.browsed import browsed, opened
from tests.dashboard.components.clipboards import clipboard
from tests.dashboard.running import FakeNode, Running
from tests.end_to_end.browsers import Chromium, Visit
from worker.session.client import TaskRef

pytestmark = pytest.mark.real

LINES = [
    "rank 1 stdout: one 0", "rank 1 stdout: one 1", "rank 0 stdout: zero 0", "rank 0 stderr: UserWarning: x",
    "rank 1 stderr: ValueError: no", "rank 0 stdout: zero 1", "launcher stderr: Error: bye",
]  # fmt: skip


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with browsed(opened(tmp_path_factory.mktemp("merged") / "data")) as it:
        dashboard = Running(it.service, it.url)
        with dashboard.closing:
            yield dashboard


@pytest.fixture
def visit(browser: Chromium, dashboard: Running) -> Iterator[Visit]:
    """Somebody who has signed in, and whose pages may have no error."""
    with browser.visit() as visit:
        visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
        visit.new_page().goto(f"{dashboard.url}/?token={dashboard.service.credentials.user}")
        yield visit
        assert visit.errors == []


@pytest.fixture(scope="module")
def node(dashboard: Running) -> FakeNode:
    return dashboard.node()


@pytest.fixture
def training(dashboard: Running, node: FakeNode) -> Iterator[tuple[str, FakeNode, TaskRef]]:
    """A run of two ranks that have written."""
    run_id = write_logs(dashboard, node, PIECES)
    task = node.task()
    node.report(task, "running")
    yield run_id, node, task
    node.report(task, "succeeded", exit_code=0)


def open_merged(visit: Visit, dashboard: Running, run_id: str) -> Page:
    page = visit.new_page()
    page.goto(f"{dashboard.url}/run?id={run_id}&tab=logs")
    page.get_by_label("Rank", exact=True).select_option("all ranks")
    page.get_by_label("Stream").select_option("both streams")
    return page


@pytest.mark.long
def test_all_ranks_and_both_streams_are_followed(visit, dashboard, training) -> None:
    run_id, node, task = training
    page = open_merged(visit, dashboard, run_id)
    expect(page.locator(".pane .text")).to_have_text(LINES)
    expect(page.locator(".pane .sourced.err")).to_have_count(3)
    expect(page.locator(".by-time")).to_contain_text("arrived")
    expect(page.get_by_role("link", name="Download log")).to_be_hidden()
    node.append(task, "logs/rank0.out", 0, 18, b" 2\n")
    node.append(task, "logs/rank1.out", 0, 12, b"\x1b[31mone\x1b[0m <b>\nopen")
    now = [*LINES, "rank 0 stdout: zero 2", "rank 1 stdout: one <b>"]
    expect(page.locator(".pane .text")).to_have_text(now)
    page.get_by_role("button", name="Copy", exact=True).click()
    assert clipboard(page, "one <b>").splitlines() == now
    page.get_by_label("Rank", exact=True).select_option("rank 1")
    expect(page.locator(".pane .text")).to_have_text([LINES[0], LINES[1], LINES[4], "rank 1 stdout: one <b>"])
    page.get_by_label("Stream").select_option("stdout")
    expect(page.locator(".pane .text").first).to_have_text("one 0")
    expect(page.locator(".by-time")).to_be_hidden()


@pytest.mark.long
def test_the_lines_of_all_logs_are_read_from_the_beginning(visit, dashboard, training) -> None:
    page = open_merged(visit, dashboard, training[0])
    expect(page.locator(".pane .text")).to_have_text(LINES)
    page.route(
        "**/logs/merged?*limit=196608*",
        lambda route: route.continue_(url=route.request.url.replace("196608", "20")),
    )
    page.get_by_role("button", name="Beginning").click()
    later = page.get_by_role("button", name="Load later lines")
    later.click()
    expect(page.locator(".pane .text")).to_have_text(LINES)
    expect(later).to_be_hidden()


def test_all_logs_are_searched_and_a_line_links_to_its_rank(visit, dashboard, training) -> None:
    run_id, _, _ = training
    page = open_merged(visit, dashboard, run_id)
    page.get_by_label("Search the whole log").fill("one")
    expect(page.locator(".found")).to_have_text("2 lines")
    page.get_by_label("Next match", exact=True).click()
    page.get_by_label("Next match", exact=True).click()
    expect(page.locator(".text.chosen")).to_have_text("rank 1 stdout: one 1")
    page.get_by_role("button", name="First error").click()
    expect(page.locator(".text.chosen")).to_have_text("rank 1 stderr: ValueError: no")
    page.get_by_text("zero 1").click()
    expect(page.locator(".text.chosen")).to_have_text("rank 0 stdout: zero 1")
    page.get_by_role("button", name="Copy link").click()
    address = clipboard(page, "line=2")
    assert "log=0.out" in address
    follow = page.get_by_role("button", name="Follow")
    expect(follow).to_have_attribute("aria-pressed", "false")
    follow.click()
    expect(follow).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".pane .text")).to_have_text(LINES)
    page.goto(address)
    expect(page.locator(".text.chosen")).to_have_text("zero 1")


@pytest.mark.long
def test_earlier_lines_of_all_ranks_join_without_a_seam(visit, dashboard, training) -> None:
    run_id, node, task = training
    size = {0: 18, 1: 12}
    numbers = list(range(3000))
    for start in range(0, 3000, 100):
        rank = start // 100 % 2
        content = b"".join(b"\nline %d of a training that goes on" % n for n in numbers[start : start + 100])
        content = content.removeprefix(b"\n" if rank else b"") + (b"\n" if rank else b"")
        node.append(task, f"logs/rank{rank}.out", 0, size[rank], content)
        size[rank] += len(content)
    node.append(task, "logs/rank0.out", 0, size[0], b"\n")
    page = open_merged(visit, dashboard, run_id)
    expect(page.locator(".pane .text").last).to_contain_text(f"{2899} of")
    earlier = page.get_by_role("button", name="Load earlier lines")
    earlier.click()
    expect(earlier).to_be_hidden()
    shown_lines = page.locator(".pane .text").all_text_contents()
    assert shown_lines[:6] == LINES[:5] + LINES[5:6]
    shown = [int(text.split("line ")[1].split()[0]) for text in shown_lines if "line " in text]
    assert sorted(shown) == numbers
