"""A preflight in words and colours, for two nodes and for hundreds."""

from __future__ import annotations

import random

from dashboard.cluster.preflights import picture, title, verdict, worst
from dashboard.views.nodes.nodes_page import described
from domain.views import CheckView, PreflightCell

MEND = "Synchronise its clock with a time server: `timedatectl set-ntp true`, or chrony."


def check(nodes: int = 3, ended_at: float | None = 101.0, **more) -> CheckView:
    names = [f"gpu-{n}" for n in range(nodes)]
    cells = [PreflightCell(row, name, None, "ok", "right", "") for row in ("alive", "torch", "clock") for name in names]
    known = {"id": 1, "asked_at": 100.0, "run_id": None, "nodes": names, "cells": cells, "bandwidth": []}
    return CheckView(**known | {"ended_at": ended_at} | more)


def with_cells(*cells: PreflightCell, **more) -> CheckView:
    plain = check(**more)
    spoiled = {(cell.row, cell.node) for cell in cells}
    return check(cells=[c for c in plain.cells if (c.row, c.node) not in spoiled] + list(cells), **more)


OFF = PreflightCell("clock", "gpu-2", None, "failed", "5.0 s ahead of the server", MEND)


def test_a_red_cell_stands_first_with_its_fix():
    drawn = picture(with_cells(OFF))
    assert (drawn["verdict"], drawn["title"]) == (
        "red",
        "3 nodes at 1970-01-01 00:01 UTC: 1 of 9 cells is red",
    )
    (trouble,) = drawn["troubles"]
    assert (trouble["where"], trouble["row"], trouble["fix"]) == ("gpu-2", "clock", MEND)
    assert drawn["rows"] == ["alive", "torch", "clock"]
    assert drawn["nodes"][2]["cells"] == [["ok", "right"], ["ok", "right"], ["failed", OFF.value]]


def test_all_green_and_still_asking_are_said():
    assert title(check(), ", by ana") == "3 nodes at 1970-01-01 00:01 UTC, by ana: all checks passed"
    assert title(check()) == "3 nodes at 1970-01-01 00:01 UTC: all checks passed" and verdict(check()) == "green"
    asking = with_cells(PreflightCell("alive", "gpu-1", None, "waiting", "", ""), ended_at=None)
    assert title(asking) == "3 nodes at 1970-01-01 00:01 UTC: asking 1 node …" and verdict(asking) == "asking"
    assert title(check(ended_at=None)) == "3 nodes at 1970-01-01 00:01 UTC: measuring …"
    assert described(with_cells(OFF)) == "1970-01-01 00:01 UTC · 3 nodes · 1 red"


def test_the_worst_of_many_ways_is_shown():
    ways = [PreflightCell("reach", "a", peer, "failed", "no answer at :1", "") for peer in "bcdefg"]
    state, words = worst([PreflightCell("reach", "a", None, "ok", "2 of 8", ""), *ways])
    assert state == "failed" and words.startswith("b: no answer at :1; c: ") and words.endswith("and 2 more")
    assert worst([]) == ["skipped", "not checked"]


def test_bandwidth_is_a_matrix_with_what_is_broken():
    speeds = [[None, 11e9, None], [11e9, None, 2.5e9], [None, 2.5e9, None]]
    broken = PreflightCell("bandwidth", "gpu-2", "gpu-0", "failed", "timed out", "Look at the switch.")
    drawn = picture(with_cells(broken, bandwidth=speeds))["links"]
    assert drawn["summary"] == "2 pairs measured, median 11 GB/s, slowest 2.5 GB/s"
    assert drawn["matrix"][0][1] == drawn["matrix"][1][0] == {"text": "11 GB/s", "share": 1.0}
    assert drawn["matrix"][0][0] is None and drawn["matrix"][0][2]["problem"] == "timed out"
    assert picture(check())["links"] is None


def test_matrix_lists_the_slowest_links():
    luck, nodes = random.Random(3), 200
    speeds: list[list[float | None]] = [[None] * nodes for _ in range(nodes)]
    for n in range(nodes):
        speeds[n][(n + 1) % nodes] = luck.uniform(9e9, 12e9)
    speeds[7][8] = 1e9
    drawn = picture(check(nodes, bandwidth=speeds))["links"]
    assert drawn["matrix"] is None and len(drawn["slowest"]) == 20
    assert drawn["slowest"][0]["name"] == "gpu-7 – gpu-8" and drawn["slowest"][0]["text"] == "1 GB/s"
