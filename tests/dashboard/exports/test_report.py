"""A report is one file without scripts and addresses, in which nothing that a user wrote is HTML."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.exports.chart import HEIGHT, WIDTH, ChartLine, chart
from dashboard.exports.elements import written
from dashboard.exports.report import colour_numbers, style_sheet
from tests.dashboard.exports.html_page import HOSTILE, Page
from tests.dashboard.running import FakeNode, Running
from tests.dashboard.seeded_store import Seed


def report(dashboard: Running, *run_ids: str) -> str:
    answer = dashboard.http.get("/api/export", params={"runs": ",".join(run_ids), "format": "html"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"].startswith("attachment")
    return answer.text


def assert_self_contained(text: str) -> Page:
    page = Page(text)
    assert not {"script", "img", "link", "iframe", "a"} & set(page.tags)
    names = {name for name, _ in page.attributes}
    assert not {"src", "href", "style"} & names and not any(name.startswith("on") for name in names)
    policy = next(value for name, value in page.attributes if name == "content" and "default-src" in (value or ""))
    digest = base64.b64encode(hashlib.sha256(page.text["style"].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return page


def test_a_report_escapes_what_users_wrote_and_needs_nothing_else(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch(name=HOSTILE, env={"API_KEY": "secret-word"}, batch_size=8)
    task = node.task()
    node.report(task, "running")
    losses = [(1, 2.0, 1.0), (2, math.nan, 2.0), (3, 1.0, 3.0), (4, 0.5, 4.0)]
    node.log_points(task, 0, **{HOSTILE: losses, "train__loss": losses})
    error = {"rank": 0, "node_rank": 0, "exit_code": 1, "exception": HOSTILE, "file": "a.py", "line": 1,
             "traceback": HOSTILE}  # fmt: skip
    node.report(task, "failed", exit_code=1, message=HOSTILE, error=error)
    dashboard.http.patch(f"/api/runs/{run_id}", json={"note": HOSTILE, "add_tags": ["<b>tag</b>"]})
    text = report(dashboard, run_id)
    page = assert_self_contained(text)
    assert text.count("alert(1)") >= 5 and "secret-word" not in text and page.tags.count("path") == 2
    assert page.text["h1"].startswith(HOSTILE)
    assert "Launched by" in text and text.count("<td>owner</td>") >= 2 and "<td>worker n0</td>" in text
    other = dashboard.launch(batch_size=16)
    text = report(dashboard, run_id, other)
    assert_self_contained(text)
    assert "Batch per GPU" in text and "The same code." in text and "c1 { stroke" in text
    refusal = dashboard.http.get("/api/export", params={"runs": f"{run_id},aaaaaaaaaa", "format": "html"})
    assert refusal.status_code == 404


def test_compared_runs_share_the_chart_and_the_results_of_a_figure_of_two_loggers(dashboard: Running) -> None:
    seed = Seed(dashboard.service.store, dashboard.service.clock())
    seed.node("gpu-1", 2)
    loggers: tuple[tuple[str, Literal["events", "printed"], str], ...] = (
        ("logs", "events", "train/loss"),
        ("prints", "printed", "loss"),
    )
    for name, source, tag in loggers:
        seed.launch(name, 90, gpus_per_node=1)
        seed.start(name, 80)
        seed.points(name, {tag: [(step, 1 / step, 1000.0 + step) for step in (1, 2, 3)]}, source)
    text = report(dashboard, *seed.runs.values())
    page = Page(text)
    assert page.tags.count("figure") == 1 and "loss, includes printed/loss, train/loss" in page.text["figcaption"]
    assert all(f'class="curve c{place}"' in text[text.index("<figure") :] for place in (0, 1))
    assert text.count(" (best)") == 1 and "loss (best)" in text and text.count("0.3333") >= 2


def test_a_single_run_keeps_the_names_of_its_series(dashboard: Running) -> None:
    seed = Seed(dashboard.service.store, dashboard.service.clock())
    seed.node("gpu-1", 1)
    seed.launch("prints", 90, gpus_per_node=1)
    seed.start("prints", 80)
    seed.points("prints", {"loss": [(1, 2.0, 1000.0), (2, 1.0, 1001.0)]}, "printed")
    assert Page(report(dashboard, seed.runs["prints"])).text["figcaption"] == "printed/loss"


numbers = st.floats(width=64) | st.sampled_from([0.0, -0.0, 5e-324, 1.7e308, -1.7e308, math.nan, math.inf])


@given(st.lists(st.tuples(st.integers(-(2**53), 2**53), numbers), max_size=20))
def test_a_chart_of_any_values_stays_on_its_plane(points: list[tuple[int, float]]) -> None:
    steps = np.array([float(step) for step, _ in points])
    figure = chart("loss", [ChartLine(0, "run", steps, np.array([value for _, value in points]))])
    if figure is None:
        assert sum(math.isfinite(value) for _, value in points) < 2
        return
    path = re.search(r'<path d="([^"]*)"', written(figure))
    assert path is not None
    for x, y in re.findall(r"[ML](\S+?) ([-\d.naife]+)", path[1]):
        assert -1 <= float(x) <= WIDTH + 1 and -1 <= float(y) <= HEIGHT + 1


def test_a_run_keeps_its_colour_beside_other_runs() -> None:
    a, b, c = "0000000001", "0000000002", "000000000a"  # a and c would have the same
    assert colour_numbers([a, b]) == [1, 2] and colour_numbers([b]) == colour_numbers([b, a])[:1] == [2]
    assert colour_numbers([a, c, b]) == [1, 2, 3] and colour_numbers([c]) == [2]
    many = colour_numbers([f"{number % 3:010}" for number in range(40)])
    assert len(set(many)) == 40 and set(many[:8]) == set(range(8))


@pytest.mark.parametrize("runs", [1, 8, 50])
def test_every_run_of_a_report_has_a_colour_in_both_themes(runs: int) -> None:
    style = style_sheet([f"{number:010}" for number in range(runs)])
    for place in range(runs):
        assert len(re.findall(rf"--c{place}: #[0-9a-f]{{6}};", style)) == 2
