"""TensorBoard in Chromium: it works in its sandbox, and nothing in it can act for the person who looks at it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.event_files import write_events
from tests.dashboard.running import FakeNode, Running
from tests.dashboard.tensorboard.opened_pages import bring
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.real

REACH_OUT = """async () => {
  const said = {};
  for (const address of ["/api/runs", "/api/runs?x"]) {
    try { said[address] = (await fetch(address, {credentials: "include"})).status; }
    catch (error) { said[address] = "refused"; }
  }
  try { said.opened = String(window.open("/")); } catch (error) { said.opened = "refused"; }
  return {...said, origin: self.origin, cookie: document.cookie};
}"""


@pytest.fixture(scope="module")
def on_port() -> bool:
    return True


@pytest.fixture(autouse=True)
def near_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the program has it: the path of a socket may be about a hundred bytes long."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def page(browser: Chromium) -> Iterator[Page]:
    """A browser's page; at the end nothing may have gone wrong on it."""
    wrong: list[str] = []
    with browser.visit(1400) as visit:
        page = visit.new_page()
        page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
        page.wrong = wrong
        yield page
        wrong += visit.errors
    assert [words for words in wrong if "401" not in words and "404" not in words] == []


@pytest.mark.long
def test_tensorboard_opens_after_the_login_with_all_its_tabs(
    dashboard: Running, node: FakeNode, page: Page, tmp_path: Path
) -> None:
    run = dashboard.launch(name="seen from all sides")
    task = node.task()
    page.goto(f"{dashboard.url}/tensorboard/{run}/")
    page.get_by_label("Token").fill(dashboard.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="No event files yet")).to_be_visible()
    bring(node, task, write_events(tmp_path / "logs"))

    expect(page.get_by_role("tab", name="Time Series")).to_be_visible()  # it opened by itself
    expect(page).to_have_title("seen from all sides")
    expect(page.locator("scalar-card").first).to_contain_text("train/loss")
    expect(page.locator("scalar-card line-chart").first).to_be_visible()
    expect(page.locator("image-card img").first).to_be_visible()
    assert page.url.startswith(f"{dashboard.url}/tensorboard/{run}/#"), "no pass in the address"
    for tab, shown in (
        ("Images", "tf-image-loader"), ("Histograms", "tf-histogram-loader"), ("Scalars", "tf-scalar-card"),
        ("Text", "tf-text-loader"),
    ):  # fmt: skip
        page.get_by_role("tab", name=re.compile(rf"^\s*{tab}\s*$", re.IGNORECASE)).click()
        expect(page.locator(shown).first).to_be_visible()
    expect(page.locator("tf-text-loader strong").first).to_have_text("bold")
    expect(page).to_have_title("seen from all sides")


def test_event_file_cannot_act_for_its_viewer(dashboard: Running, node: FakeNode, page: Page, tmp_path: Path) -> None:
    run = dashboard.launch()
    bring(node, node.task(), write_events(tmp_path / "logs"))
    page.goto(f"{dashboard.url}/tensorboard/{run}/?token={dashboard.token}")
    expect(page.get_by_role("tab", name="Time Series")).to_be_visible()
    # Even a script that got past TensorBoard's own cleaning: here it is run on purpose.
    said = page.evaluate(REACH_OUT)
    refused = {"/api/runs": "refused", "/api/runs?x": "refused", "opened": "null"}
    assert said == refused | {"origin": "null", "cookie": ""}
    page.wrong.clear()
