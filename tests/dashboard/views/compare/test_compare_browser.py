"""The Compare page in Chromium: runs picked in the table, one chart a series, and everything chosen in the address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.service import stream_pieces
from db.attempts import attempt_queries
from db.tasks.task_reports import StreamKey
from domain.messages import PointBatch
from domain.spec import RunEdit
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_store import Seed
from tests.dashboard.visits import axe_faults, signed_in
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    with browsed(opened(tmp_path_factory.mktemp("compare") / "data")) as it:
        yield it


@pytest.fixture(scope="module")
def made(dashboard: Browsed) -> Seed:
    """Four ended runs, two of them with the same settings, and one that trains."""
    seed = Seed(dashboard.service.store, dashboard.service.clock())
    seed.node("gpu-1", 5)
    rates = {"first": 0.1, "second": 0.2, "training": 0.3, "twin a": 0.5, "twin b": 0.5}
    for number, (name, lr) in enumerate(rates.items()):
        batch = 32 if name.startswith("twin") else None
        seed.launch(name, 900, gpus_per_node=1, lr=lr, seed=number, batch_size=batch)
        seed.start(name, 890)
        seed.train(name, 120, 800)
    for name, data_s in (("first", 0.01), ("second", 0.03), ("training", 0.0)):
        seed.spend(name, 101, data_s=data_s, forward_s=0.03)
    for name in ("first", "second", "twin a", "twin b"):
        seed.report(name, "succeeded", 100, exit_code=0)
    return seed


@pytest.fixture
def page(browser: Chromium, dashboard: Browsed) -> Iterator[Page]:
    """The page, signed in; at the end it may have had no error."""
    with signed_in(browser, dashboard) as visit:
        yield visit.new_page()
        assert visit.errors == []


def chosen(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def log_point(dashboard: Browsed, seed: Seed, label: str, step: int, value: float) -> None:
    """A point more, as the run's worker sends it."""
    fence = attempt_queries.attempts(dashboard.service.store, seed.runs[label])[-1].fence
    series = {"train/loss": [(step, value, dashboard.service.clock())]}
    batch = PointBatch(path="events", generation=0, start=12_000, end=12_100, series=series)
    piece = stream_pieces.ArrivedPiece(StreamKey(fence, 0, batch.path, batch.generation), batch)
    assert stream_pieces.take(dashboard.service, seed._node_of(label), [piece]) == [stream_pieces.Taken(12_100)]


def test_picked_runs_share_charts_and_all_that_is_chosen_is_in_the_address(page, dashboard, made):
    ids = [made.runs[name] for name in ("second", "training", "first")]
    page.goto(dashboard.url)
    for name in ("second", "training", "first"):
        page.get_by_label(f"Select {name}").check()
    colour = page.get_by_label("Select training").evaluate("box => getComputedStyle(box).accentColor")
    page.get_by_role("link", name="Compare", exact=True).click()

    loss = page.get_by_role("region", name="train/loss of 3 runs")
    expect(loss.locator(".value")).to_have_text(re.compile(r"^[\d.]+ – [\d.]+$"))
    assert chosen(page) == {"runs": ",".join(ids)}
    legend = page.get_by_role("group", name="Runs")
    swatch = legend.get_by_role("button", name="training").locator("i")
    assert swatch.evaluate("swatch => getComputedStyle(swatch).backgroundColor") == colour

    legend.get_by_role("button", name="training").hover()
    expect(loss.locator(".note")).to_have_text(re.compile(r"^training, step 120$"))
    log_point(dashboard, made, "training", 121, 0.125)
    expect(loss.locator(".note")).to_have_text(re.compile(r"^training, step 121$"))
    expect(loss.locator(".value")).to_have_text("0.125")

    zoom_in(page, loss)
    page.get_by_role("button", name="Log scale").click()
    legend.get_by_role("button", name="second").click()
    page.get_by_label("Baseline").select_option("Baseline: first")
    table = page.get_by_role("table", name="What differs")
    expect(table.get_by_role("row", name="Learning rate")).to_contain_text("0.2")
    expect(table.get_by_role("row", name="train/loss (lowest)")).to_contain_text("%")
    expect(table.get_by_role("row", name="Waiting for data")).to_contain_text("30 ms+200 %")
    address = chosen(page)
    assert address["hide"] == ids[0] and address["baseline"] == ids[2] and address["log"] == "1"
    start, end = map(float, address["zoom"].split(","))
    assert 20 < start < 40 < 50 < end < 70

    dashboard.service.delete(ids[0])
    expect(page.get_by_role("region", name="Differences").get_by_text("Deleted: second")).to_be_visible()
    expect(table.locator("thead th")).to_have_text([re.compile("training"), re.compile("first")])
    assert chosen(page) == address

    page.reload()
    expect(page.get_by_role("region", name="train/loss of 2 runs")).to_be_visible()
    expect(page.get_by_role("button", name="Log scale")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Baseline")).to_have_value(ids[2])
    assert chosen(page) == address
    assert axe_faults(page) == []

    assert_drawn_relative_to_the_baseline(page, legend)
    page.get_by_role("link", name="Choose runs").click()
    expect(page.get_by_label("Select training")).to_be_checked()
    expect(page.get_by_label("Select first")).to_be_checked()


def zoom_in(page: Page, chart: Locator) -> None:
    """Drag over the second quarter of a chart, under whose pointer a run is named."""
    box = chart.locator(".u-over").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    expect(chart.locator(".note")).to_have_text(re.compile(r"^(first|second|training), step \d+$"))
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=4)
    page.mouse.up()


def assert_drawn_relative_to_the_baseline(page: Page, legend: Locator) -> None:
    """The chart shows per cent of the baseline on request, and each point its change to it."""
    page.get_by_role("button", name="% of baseline").click()
    expect(loss_of(page, 2).locator(".value")).to_have_text(re.compile(r"^[+−±][\d.]+ %( – .*)?$"))
    legend.get_by_role("button", name="first").hover()
    expect(loss_of(page, 2).locator(".value")).to_have_text("±0 %")
    assert chosen(page)["relative"] == "1"
    page.get_by_role("button", name="% of baseline").click()
    legend.get_by_role("button", name="training").hover()
    newest = r"^training, step 121(, [+−][\d.]+ % to baseline)?$"
    expect(loss_of(page, 2).locator(".note")).to_have_text(re.compile(newest))


def loss_of(page: Page, runs: int) -> Locator:
    """The chart of the training loss."""
    return page.get_by_role("region", name=f"train/loss of {runs} runs")


def choose_fields(page: Page, fields: Locator, groups: Locator) -> None:
    """Runs are points over one field and lines over all; what is chosen is in the address."""
    points = fields.get_by_role("group", name="val/loss (best) over Learning rate").locator("a")
    expect(points).to_have_count(3)
    lines = fields.get_by_role("group", name="Parallel coordinates").locator("a.hovered")
    points.first.hover()
    expect(lines).to_have_count(1)
    expect(groups.first).to_have_class("highlighted")
    fields.get_by_label("Horizontal field").select_option("Seed")
    fields.get_by_label("Colour by").select_option("train/loss (min)")
    fields.get_by_role("button", name="Log").first.click()
    fields.get_by_label("Add or remove an axis").select_option("train/loss (last)")
    assert chosen(page) | {
        "across": "seed", "colour": "train/loss:min", "logs": "val/loss:best",
        "axes": "lr,batch_size,global_batch_size,val/loss:best,train/loss:last",
    } == chosen(page)  # fmt: skip


def one_group_keeps_its_colour(page: Page) -> None:
    """All runs as one group: one row of means, in the colour that the first run has by itself."""
    swatch = "element => element.style.background"
    first = page.get_by_role("group", name="Runs").locator("i").first
    expect(first).to_be_visible()
    colour = first.evaluate(swatch)
    page.get_by_label("Average the runs").select_option("all")
    group = page.get_by_role("group", name="Groups").get_by_role("button")
    expect(group).to_have_text("All runs3 runs")
    row = page.get_by_role("table", name="What differs").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("td").nth(1)).to_contain_text("±")
    assert group.locator("i").evaluate(swatch) == row.locator("i").evaluate(swatch) == colour
    assert chosen(page)["group"] == "all"
    page.get_by_label("Average the runs").select_option("no")
    expect(page.get_by_role("group", name="Runs").get_by_role("button")).to_have_count(3)


def test_runs_of_different_loggers_share_the_chart_of_their_loss(page, dashboard, made):
    loggers = (("logs", "events", "loss"), ("prints", "printed", "loss"), ("trains", "events", "train/loss"))
    for number, (name, source, tag) in enumerate(loggers, 1):
        made.launch(name, 90, gpus_per_node=1, target="train.py", lr=0.1 * number, args=["--lr", "{lr}"])
        made.start(name, 80)
        series = {tag: [(step, number / step, 1000.0 + step) for step in range(1, 40)]}
        made.points(name, series | ({"a/first loss": [(1, 1.0, 1000.0)]} if number == 1 else {}), source)
        made.report(name, "succeeded", 10, exit_code=0)
    page.goto(f"{dashboard.url}/compare?runs={','.join(made.runs[name] for name, *_ in loggers)}")
    loss = page.get_by_role("region", name="loss of 3 runs")
    expect(loss.get_by_text("includes printed/loss, train/loss")).to_be_visible()
    expect(loss.locator(".value")).to_have_text(re.compile(r"^[\d.]+ – [\d.]+$"))
    expect(page.get_by_role("row", name="loss (lowest), includes printed/loss, train/loss")).to_be_visible()
    expect(page.get_by_label("Vertical field")).to_have_value("loss:best")
    expect(page.get_by_role("row", name="Argument --lr")).to_contain_text("0.2")
    expect(page.get_by_text("{lr}")).to_have_count(0)
    assert axe_faults(page) == []


@pytest.mark.long
def test_a_run_that_is_gone_is_named_and_runs_of_the_same_settings_are_one_group(page, dashboard, made):
    dashboard.service.edit(made.runs["training"], RunEdit(baseline=True))
    page.goto(f"{dashboard.url}/compare?runs={made.runs['first']},zzzzzzzzzz")
    expect(page.get_by_text("1 run of this address does not exist: zzzzzzzzzz.")).to_be_visible()
    expect(page.get_by_role("region", name="train/loss of 1 run")).to_be_visible()
    expect(page.get_by_label("Baseline")).to_have_value(made.runs["training"])
    expect(page.get_by_role("row", name="train/loss (lowest)")).to_contain_text("%")

    page.goto(f"{dashboard.url}/compare?runs={','.join(made.runs[name] for name in ('first', 'twin a', 'twin b'))}")
    one_group_keeps_its_colour(page)
    page.get_by_label("Average the runs").select_option("by Learning rate")
    groups = page.get_by_role("group", name="Groups").get_by_role("button")
    expect(groups).to_have_text(["Learning rate 0.11 run", "Learning rate 0.52 runs"])
    pair = page.get_by_role("row", name="Learning rate 0.5")
    expect(pair.locator("td").nth(1)).to_have_text(re.compile(r"^[\d.]+± [\d.]+[+−][\d.]+ %$"))
    assert chosen(page)["group"] == "lr"
    expect(pair.locator("td").nth(1)).to_contain_text("%")  # of the project's baseline
    page.get_by_role("button", name="% of baseline").click()
    expect(page.get_by_role("region", name="train/loss of 3 runs").locator(".value")).to_contain_text(" % – ")
    page.get_by_role("button", name="% of baseline").click()
    groups.last.hover()
    loss = page.get_by_role("region", name="train/loss of 3 runs")
    expect(loss.locator(".note")).to_have_text(re.compile(r"^Learning rate 0.5, step 120, [+−][\d.]+ % to baseline$"))

    fields = page.get_by_role("region", name="Fields")
    choose_fields(page, fields, groups)
    page.get_by_label("Rows", exact=True).select_option("Seed")
    page.get_by_label("Columns", exact=True).select_option("Learning rate")
    crossed = page.get_by_role("table", name="val/loss (best) by Seed and Learning rate")
    expect(crossed.get_by_role("columnheader")).to_have_text(["Learning rate 0.1", "Learning rate 0.5"])
    expect(crossed.get_by_role("row", name="Seed 0").locator("td").last).to_have_text("–")

    page.get_by_role("button", name="Samples").click()
    expect(page.get_by_text("Samples are unknown if the script sets its own batch size: first")).to_be_visible()
    groups.last.hover()
    expect(loss.locator(".note")).to_have_text(re.compile(r"^Learning rate 0.5, 3.840 samples$"))
    assert chosen(page)["x"] == "samples"
    assert axe_faults(page) == []
    fields.get_by_role("group", name="val/loss (best) over Seed").locator("a").first.click()
    expect(page.get_by_role("heading", name="first")).to_be_visible()
    page.goto(f"{dashboard.url}/compare")
    expect(page.get_by_text("Select two or more runs")).to_be_visible()
