"""The page of a run that somebody else started: Stop where that is allowed, and the command to start it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard.pages import Pages, button, served, texts
from tests.db.watched_hosts import Host, watched


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as opened:
        yield opened


def started(pages: Pages, **more) -> Host:
    now = pages.service.clock()
    return watched(pages.service.store, now=now, started_at=now - 60.0, **more)


def labels(page) -> list[str]:
    return [one.label for one in page.button]


def test_it_is_stopped_but_not_launched_or_resumed_from_here(pages):
    host = started(pages, name="resnet")
    host.report("running")
    page = pages.open("run", id=host.place.run_id)
    assert not page.exception and not button(page, "Stop").disabled
    host.report("failed", message="It broke.")
    page = pages.open("run", id=host.place.run_id)
    assert not {"Stop", "Resume", "Launch again with changes"} & {*labels(page)}
    button(page, "Start again").click().run()
    assert not page.exception
    assert "cd /home/mara/vision && rankzero watch --name resnet -- torchrun" in texts(page)


@pytest.mark.parametrize("tab", ["logs", "ranks", "checkpoints", "history", "code", "spec"])
def test_every_tab_shows_what_there_is(pages, tab):
    host = started(pages)
    host.report("running", argv=["python", "train.py"])
    page = pages.open("run", id=host.place.run_id, tab=tab)
    assert not page.exception
    if tab == "history":
        assert "watched: started on gpu-3 by mara" in texts(page).replace("\\", "")


def test_stop_names_the_command_that_ends(pages):
    host = started(pages)
    host.report("running")
    page = pages.open("run", id=host.place.run_id)
    button(page, "Stop").click().run()
    assert "on gpu-3, started by mara, gets SIGTERM" in texts(page).replace("\\", "")
    button(page, "Stop the run").click().run()
    assert not page.exception and host.assignment.action == "stop"


def test_stop_says_where_a_run_that_may_only_be_looked_at_can_be_stopped(pages):
    host = started(pages, look_only=True, scheduler="Slurm job 4711")
    host.report("running")
    stop = button(pages.open("run", id=host.place.run_id), "Stop")
    assert stop.disabled
    assert "started by mara (Slurm job 4711): stop it there" in stop.help.replace("\\", "")


def test_a_notebook_has_no_command_to_type(pages):
    host = started(pages, argv=[])
    host.report("succeeded")
    page = pages.open("run", id=host.place.run_id)
    button(page, "Start again").click().run()
    assert "It watched itself, in a notebook or script" in texts(page)
