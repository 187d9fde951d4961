"""The browser components in Chromium, fed by a small server that speaks the live channel's protocol."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.dashboard.components.charts_page import (
    WALL,
    Show,
    card,
    drawn,
    server,
    show,
)
from tests.dashboard.live_server import FakeServer, Message, falling, run_view, series
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.real

__all__ = ["server", "show"]


def test_a_curve_is_drawn_and_grows(server: FakeServer, show: Show) -> None:
    server.picture.append(series("train/loss", falling(500)))
    page = show()
    chart = card(page, "train/loss")
    expect(chart.locator(".title")).to_have_text("Loss")
    expect(chart.locator("canvas")).to_have_count(1)
    before = drawn(chart)
    server.send(series("train/loss", [[500, 0.125, WALL + 50]], reset=False))
    expect(chart.locator(".value")).to_have_text("0.125")
    assert drawn(chart) != before


def test_charts_of_all_open_sections_stand_in_one_grid(server: FakeServer, show: Show) -> None:
    names = {f"{prefix}/{i}": "events" for prefix in ("train", "debug") for i in range(5)}
    server.picture.append({"type": "names", "series": names})
    page = show()
    sections, cards = page.get_by_role("group", name="Sections").get_by_role("button"), page.locator(".grid > .card")
    opened = page.locator('.sections [aria-pressed="true"]')
    expect(opened).to_have_text(["Training5"])
    expect(cards).to_have_count(5)
    expect(cards.locator(".section").first).to_be_empty()
    asked = server.wait_said(lambda message: len(message.get("series") or ()) == 5)
    assert {name.partition("/")[0] for name in asked["series"]} == {"train"}
    sections.filter(has_text="debug/").click()
    server.wait_said(lambda message: len(message.get("series") or ()) == 10)
    server.send(series("val/accuracy", falling(5)))
    expect(sections).to_have_text(["Training5", "Validation1", "debug/5"])
    expect(opened).to_have_text(["Training5", "Validation1", "debug/5"])
    expect(page.locator(".grid")).to_have_count(1)
    expect(cards.locator(".section")).to_have_text([*["Training"] * 5, "Validation", *["debug/"] * 5])
    sections.filter(has_text="Training").click()
    expect(cards).to_have_count(6)


def test_validation_is_open_among_many_charts(server: FakeServer, show: Show) -> None:
    names = {f"{name}{i}": "events" for name in ("train/a", "debug/b", "val/c") for i in range(5)}
    server.picture.append({"type": "names", "series": names})
    page = show()
    expect(page.locator('.sections [aria-pressed="true"]')).to_have_text(["Training5", "Validation5"])


def test_few_charts_stand_open_and_what_the_probe_saw_gives_way_to_what_is_logged(
    server: FakeServer, show: Show
) -> None:
    server.picture.append(series("probe/rank0/step_time_s", falling(5)))
    page = show()
    opened = page.locator('.sections [aria-pressed="true"]')
    expect(opened).to_have_text(["Per-rank performance1"])
    server.send(series("train/loss", falling(5)), series("debug/x", falling(5)))
    expect(opened).to_have_text(["Training1", "debug/1"])


def test_a_zoom_survives_new_points_and_is_undone_by_a_double_click(server: FakeServer, show: Show) -> None:
    server.picture.append(series("train/loss", falling(500)))
    page = show()
    chart = card(page, "train/loss")
    reset = chart.get_by_role("button", name=re.compile("Reset zoom"))
    over = chart.locator(".u-over")
    expect(over).to_be_visible()
    whole = drawn(chart)
    drag(page, over, 0.3, 0.5)
    expect(reset).to_be_visible()
    wait_for(lambda: drawn(chart) != whole, "the zoomed part to be drawn")
    zoomed = drawn(chart)
    server.send(series("train/loss", [[500, 9.0, WALL + 50]], reset=False))
    page.mouse.move(2, 2)
    expect(chart.locator(".value")).to_have_text("9")
    assert drawn(chart) == zoomed
    over.dblclick()
    expect(reset).to_be_hidden()
    wait_for(lambda: drawn(chart) != zoomed, "everything to be drawn again")


def test_zooming_in_fetches_what_the_first_picture_left_out(server: FakeServer, show: Show) -> None:
    server.metrics["train/loss"] = falling(20_000)
    server.picture.append(series("train/loss", falling(20_000)[::10]))
    page = show()
    over = card(page, "train/loss").locator(".u-over")
    expect(over).to_be_visible()
    drag(page, over, 0.5, 0.6)
    wait_for(lambda: len(server.asked) == 1, "the finer points to be asked for")
    since, until = (int(number) for number in re.findall(r"(?:since|until)=(\d+)", server.asked[0]))
    assert 9_500 < since < 10_500 < 11_500 < until < 12_500
    trouble = card(page, "train/loss").locator(".trouble")
    expect(trouble).to_be_empty()
    page.route("**/metrics?*", lambda route: route.fulfill(status=500, json={"detail": {"message": "It broke."}}))
    over.dblclick()
    drag(page, over, 0.5, 0.6)
    expect(trouble).to_have_text("Finer points could not be read. It broke.")


def test_series_whose_finer_points_cannot_be_read_holds_up_no_other(server: FakeServer, show: Show) -> None:
    for name in ("train/loss", "val/loss"):
        server.metrics[name] = falling(20_000)
        server.picture.append(series(name, falling(20_000)[::10]))
    page = show()
    page.route("**/metrics?name=train*", lambda route: route.fulfill(status=500, json={}))
    over = card(page, "val/loss").locator(".u-over")
    expect(over).to_be_visible()
    drag(page, over, 0.5, 0.6)
    expect(card(page, "val/loss").locator(".trouble")).to_contain_text("Finer points could not be read.")
    wait_for(lambda: len(server.asked) == 1, "the finer points of the other to be asked for")
    assert "name=val" in server.asked[0]


def test_a_lost_connection_is_shown_and_goes_on_after_the_last_point(server: FakeServer, show: Show) -> None:
    server.picture.append(series("train/loss", falling(100)))
    page = show("run_header,charts")
    expect(card(page, "train/loss").locator("canvas")).to_be_visible()
    server.is_down = True
    server.drop()
    expect(page.locator(".live")).to_have_text("Reconnecting…")
    expect(card(page, "train/loss").locator("canvas")).to_be_visible()
    server.is_down = False
    said = server.wait_said(lambda message: message["type"] == "subscribe" and message["since"] is not None)
    assert said["since"]["1:events:train/loss"] == falling(100)[-1][2]
    # The server may repeat what is known; it is drawn once.
    server.send(run_view(), series("train/loss", [*falling(100)[-2:], [100, 0.5, WALL + 99]], reset=False))
    expect(page.locator(".live")).to_have_text("")
    expect(card(page, "train/loss").locator(".value")).to_have_text("0.5")
    assert stored_points(page, "train/loss") == 101


@pytest.mark.parametrize(
    ("status", "sentence"), [(401, "Signed out: reload the page"), (403, "You no longer have a role here")]
)
def test_whoever_is_not_let_in_any_more_is_told_why(server: FakeServer, show: Show, status: int, sentence: str) -> None:
    page = show("run_header,charts")
    page.route("**/api/runs/*", lambda route: route.fulfill(status=status, json={"detail": {"message": "No."}}))
    server.is_down = True
    server.drop()
    expect(page.locator(".live")).to_have_text(sentence)


def test_all_components_share_one_connection_which_ends_with_the_last(server: FakeServer, show: Show) -> None:
    page = show("run_header,charts,log_view")
    wait_for(lambda: server.connections == 1, "the page to connect")
    page.evaluate("cleanups[0](); cleanups[1]();")
    expect(page.locator(".charts")).to_have_count(0)
    assert server.connections == 1
    page.evaluate("cleanups[2]()")
    wait_for(lambda: server.connections == 0, "the connection to end")


def test_a_component_called_again_stays_and_only_its_last_cleanup_counts(server: FakeServer, show: Show) -> None:
    server.picture.append(series("train/loss", falling(100)))
    page = show()
    expect(card(page, "train/loss").locator("canvas")).to_be_visible()
    page.evaluate("window.again = mountAgain(0); cleanups[0]()")
    expect(page.locator(".charts")).to_have_count(1)
    page.evaluate("again()")
    expect(page.locator(".charts")).to_have_count(0)


def test_values_that_are_not_finite_are_gaps_and_said(server: FakeServer, show: Show) -> None:
    points = [[s, value, WALL + s] for s, value in enumerate([2.0, "NaN", 1.0, "NaN", "Infinity"])]
    server.picture.append(series("train/loss", points))
    page = show()
    expect(card(page, "train/loss").locator(".note")).to_have_text("∞ since step 4, last number 1")
    expect(card(page, "train/loss").locator(".value")).to_have_text("∞")


def test_nan_is_told_the_same_in_header_and_chart_and_by_the_server_since_when(server: FakeServer, show: Show) -> None:
    nan_series = series("train/loss", [[1, 2.5, WALL], [300, "NaN", WALL + 3], [999, "NaN", WALL + 4]])
    nan_series["series"]["train/loss"]["not_finite_since"] = 812  # the picture is a selection of the points
    server.picture = [run_view(last_loss="-Infinity", loss_not_finite_since=7)]
    page = show("run_header,charts")
    figure = page.locator(".figure", has_text="Train loss")
    expect(figure).to_contain_text("−∞since step 7")
    server.send(nan_series)
    expect(figure).to_contain_text("NaNsince step 812")
    expect(figure).to_have_attribute("title", "NaN since step 812, last number 2.5")
    expect(card(page, "train/loss").locator(".note")).to_have_text("NaN since step 812, last number 2.5")
    record_words(page)
    server.send(series("train/loss", [[1000, "NaN", WALL + 5]], reset=False))
    page.wait_for_function("window.written.includes('NaN since step 812')")


@pytest.mark.parametrize(
    ("name", "points", "lines"),
    [("train/loss", 99, 1), ("train/loss", 100, 2), ("probe/rank0/step_time_s", 500, 1)],
)
def test_only_long_series_of_the_whole_run_are_smoothed(
    server: FakeServer, show: Show, name: str, points: int, lines: int
) -> None:
    server.picture.append(series(name, falling(points)))
    page = show()
    expect(card(page, name).locator("canvas")).to_be_visible()
    assert card(page, name).locator(".u-cursor-pt").count() == lines


def test_the_crosshair_names_the_step_of_the_value_it_shows(server: FakeServer, show: Show) -> None:
    server.picture += [
        series("train/loss", [[step, 5.0 - step / 10, WALL + step] for step in (0, 10, 20)]),
        series("val/loss", [[step, 1.0, WALL + step] for step in (0, 20)]),
    ]
    page = show()
    chart = card(page, "train/loss")
    expect(chart.locator(".chip")).to_have_count(2)
    wait_for(lambda: stored_points(page, "val/loss") == 2, "both series, for which the chart is built anew")
    expect(chart.locator(".chip").nth(1)).to_have_text("val1")
    box = chart.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.42, box["y"] + 50)
    expect(chart.locator(".note")).to_have_text("step 10")
    expect(chart.locator(".value")).to_have_text("4")
    expect(chart.locator(".chip").nth(0)).to_have_text("train4")
    expect(chart.locator(".chip").nth(1)).to_have_text("val1 (step 0)")


def test_a_resumed_run_shows_the_newer_points_and_the_replaced_ones_on_request(server: FakeServer, show: Show) -> None:
    server.picture += [
        series("train/loss", falling(100), attempt=1),
        series("train/loss", falling(100, first=60), attempt=2),
    ]
    page = show()
    older = page.get_by_role("button", name="Replaced points")
    expect(older).to_be_visible()
    older.click()
    wait_for(lambda: stored_points(page, "train/loss") == 200, "all points of both attempts")


def test_where_another_attempt_takes_over_is_marked_with_what_it_does_differently(
    server: FakeServer, show: Show
) -> None:
    attempt_changes = [{"attempt": 2, "text": "attempt 2: 1 node, accumulation 2"}]
    server.picture = [
        run_view(attempt=2, attempt_changes=attempt_changes),
        series("train/loss", falling(600)),
        series("train/loss", falling(400, first=500), attempt=2),
    ]
    page = show("charts")
    expect(page.locator(".card canvas")).to_have_count(1)
    record_words(page)
    attempt_changes.append({"attempt": 3, "text": "attempt 3: 2 nodes, accumulation 1"})
    server.send(
        run_view(attempt=3, attempt_changes=attempt_changes),
        series("train/loss", falling(300, first=800), attempt=3, reset=False),
    )
    page.wait_for_function("window.written.includes('attempt 3: 2 nodes, accumulation 1')")
    assert "attempt 2: 1 node, accumulation 2" in page.evaluate("window.written")


def test_filter_axes_and_smoothing_change_what_is_drawn(server: FakeServer, show: Show) -> None:
    server.picture += [series("train/loss", falling(90)), series("other", falling(90))]
    page = show()
    chart = card(page, "train/loss")
    expect(chart.locator("canvas")).to_be_visible()
    expect(page.get_by_label("Smoothing")).to_be_hidden()  # of so few points nothing is smoothed
    server.send(series("train/loss", falling(210, first=90), reset=False))
    expect(page.get_by_label("Smoothing")).to_be_visible()
    pictures = {drawn(chart)}

    def changes(what: str) -> None:
        wait_for(lambda: drawn(chart) not in pictures, what)
        pictures.add(drawn(chart))

    page.get_by_label("Smoothing").fill("0")
    changes("smoothing")
    page.get_by_role("button", name="Time").click()
    changes("time axis")
    page.get_by_role("button", name="Log scale").click()
    changes("log axis")
    page.get_by_label("Filter charts by name").fill("oth")
    expect(page.locator(".card")).to_have_count(1)
    page.get_by_label("Filter charts by name").fill("nothing")
    expect(page.get_by_text("No chart has “nothing” in its name.")).to_be_visible()


def test_a_chart_is_taken_home_as_picture_and_as_table(server: FakeServer, show: Show, tmp_path: Path) -> None:
    server.picture.append(series("train/loss", falling(50)))
    page = show(theme="dark")
    chart = card(page, "train/loss")
    expect(chart.locator("canvas")).to_be_visible()
    chart.hover()
    with page.expect_download() as download:
        chart.get_by_role("button", name="Download as PNG").click()
    download.value.save_as(tmp_path / "loss.png")
    assert download.value.suggested_filename == "digits-resnet18-Loss.png"
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    href = chart.get_by_role("link", name=re.compile("CSV")).get_attribute("href")
    assert href is not None
    assert href.endswith("/api/runs/abcdefghij/metrics.csv?name=train%2Floss&source=all")


def test_a_change_of_theme_reaches_the_canvas(server: FakeServer, show: Show) -> None:
    server.picture.append(series("train/loss", falling(50)))
    page = show()
    swatch = card(page, "train/loss").locator(".chip i").first
    expect(swatch).to_have_css("background-color", "rgb(59, 91, 219)")
    page.evaluate("document.documentElement.style.setProperty('--st-background-color', '#12141c')")
    expect(swatch).to_have_css("background-color", "rgb(134, 163, 255)")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"state": "queued", "waiting_for": "needs 4 slots, 2 are free."}, "needs 4 slots, 2 are free."),
        ({"state": "starting"}, "The run is starting"),
        ({"state": "starting", "waiting_for": "gpu-1 makes the preflight checks"}, "gpu-1 makes the preflight checks"),
        ({"state": "running", "waiting_for": "gpu-1 is importing torch"}, "first point: gpu-1 is importing torch"),
        ({"state": "failed", "message": "Rank 1 was killed."}, "failed before it logged a point"),
    ],
)
def test_without_points_the_page_says_why(server: FakeServer, show: Show, changes: Message, sentence: str) -> None:
    server.picture = [run_view(**changes)]
    expect(show().locator(".empty")).to_contain_text(sentence)


def record_words(page: Page) -> None:
    """Keep in `window.written` what is written on the first chart's canvas."""
    record = """canvas => { const own = canvas.getContext('2d'); window.written = [];
        const before = own.fillText; own.fillText = function (text, ...at) {
            window.written.push(text); return before.call(this, text, ...at); }; }"""
    page.locator(".card canvas").first.evaluate(record)


def drag(page: Page, over: Locator, start: float, end: float) -> None:
    """Drag over a share of a plot's width."""
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * start, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, box["y"] + 55, steps=5)
    page.mouse.up()


def stored_points(page: Page, name: str) -> int:
    """How many points the browser holds of a series."""
    script = """name => [...window[Symbol.for('rankzero.live')].values()][0].store.series.get(name)
        .attempts.values().reduce((sum, columns) => sum + columns.count, 0)"""
    return int(page.evaluate(script, name))
