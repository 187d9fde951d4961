"""The start of a run in words and bars: how long so far, the slow node, the run before."""

from __future__ import annotations

from dashboard.views.run.start import picture
from domain.launch.timeline import Phase


def phases(node: str, queued_s: float = 10.0, **seconds: float) -> list[Phase]:
    made, began = [Phase(node, "queued", 0.0, queued_s)], queued_s
    for name, length in seconds.items():
        made.append(Phase(node, name.replace("_", " "), began, length))
        began += length
    return made


def test_a_start_in_progress_names_the_slow_node_and_the_run_before() -> None:
    now = [
        *phases("a", placed=1.0, torch_imported=6.0, rendezvous=25.0),
        *phases("b", placed=1.0, torch_imported=31.0),
    ]
    before = "earlier", phases("c", queued_s=7200.0, placed=1.0, torch_imported=6.0, first_step=5.0)
    drawn = picture(now, is_starting=True, before=before)
    assert drawn["title"] == (
        "Starting for 32 s; run earlier took 12 s to its first step. Importing torch took 31 s on b, 6 s elsewhere."
    )
    assert drawn["columns"] == ["Phase", "a", "b", "run earlier"]
    rows = {row["name"]: (row["cells"], row["slow"]) for row in drawn["rows"]}
    assert rows["torch imported"] == (["6 s", "31 s", "6 s"], 1)
    assert rows["rendezvous"] == (["25 s", "–", "–"], None)
    in_progress = [[phase["name"] for phase in node["phases"] if phase["in_progress"]] for node in drawn["nodes"]]
    assert in_progress == [["rendezvous"], ["torch imported"]]


def test_bars_begin_with_the_placement_however_long_the_queue_was() -> None:
    drawn = picture(phases("a", queued_s=7200.0, placed=1.0, first_step=5.0), is_starting=False)
    assert drawn["title"] == "First step 6 s after its nodes were chosen. Longest: first step, 5 s."
    assert [(phase["name"], phase["at"]) for phase in drawn["nodes"][0]["phases"]] == [
        ("placed", 0.0), ("first step", 1.0),
    ]  # fmt: skip
    assert drawn["rows"][0]["cells"] == ["2 h"]


def test_compilation_is_drawn_within_the_first_step() -> None:
    made = [*phases("a", placed=1.0, first_step=5.0), Phase("a", "compile", 12.0, 3.0)]
    drawn = picture(made, is_starting=False)
    assert [phase["name"] for phase in drawn["nodes"][0]["phases"] if phase["inner"]] == ["compile"]
    assert drawn["title"].startswith("First step 6 s after")
