"""The dialog that resumes a run says before the click what the checkpoint holds and lacks, and what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from db.models import Attempt, Checkpoint, Run
from domain.checkpoints.contents import CheckpointContents, Kind
from tests.dashboard.pages import Pages, button, served, texts

RUN = "digits"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch(RUN, 100, target="image_classifier", gpus_per_node=2, batch_size=32, lr=0.003)
        pages.seed.start(RUN, 90)
        pages.seed.checkpoint(RUN, 40, None)
        pages.seed.report(RUN, "failed", 10)
        yield pages


def opened(pages: Pages, holds: CheckpointContents | None) -> AppTest:
    with pages.service.store.write() as session:
        (row,) = session.query(Checkpoint)
        row.holds = holds.model_dump() if holds else None
    page = pages.open("run", id=pages.seed.runs[RUN])
    button(page, "Resume").click().run()
    assert not page.exception
    return page


def shown(page: AppTest) -> str:
    return texts(page).replace("\\", "")


def test_contents_and_what_is_missing_are_told(pages: Pages) -> None:
    kinds: list[Kind] = ["model", "rng", "sampler", "step"]
    text = shown(opened(pages, CheckpointContents(kinds=kinds)))
    assert "It holds model, random states, data position, step." in text
    assert "**optimizer**: The optimizer starts without its averages" in text and "**scaler**" not in text
    assert "Nothing known differs" in text


def test_contents_that_were_not_read_are_unknown(pages: Pages) -> None:
    text = shown(opened(pages, None))
    assert "is not known: its node has not read it" in text and "It lacks" not in text


def test_an_impossible_resume_is_warned_of_and_its_button_says_so(pages: Pages) -> None:
    holds = CheckpointContents(kinds=["model", "optimizer"], by_rank=["optimizer"], layout="DeepSpeed checkpoint")
    with pages.service.store.write() as session:
        run = session.get_one(Run, pages.seed.runs[RUN])
        run.spec = run.spec | {"elastic": True, "min_nodes": 1, "nodes": 2}
        session.query(Attempt).one().changes = {"nodes": 1}
    page = opened(pages, holds)
    assert "DeepSpeed ZeRO loads its optimizer only on the" in page.error[0].value
    button(page, "Resume it anyway").click().run()
    assert pages.service.run(pages.seed.runs[RUN]).attempt == 2


def test_the_rate_of_a_new_run_is_told_with_its_meaning(pages: Pages) -> None:
    pages.seed.launch("nan", 900, gpus_per_node=2, lr=0.001)
    pages.seed.start("nan", 890)
    pages.seed.train("nan", 50, 880, last_loss=math.nan)
    pages.seed.checkpoint("nan", 40, None)
    with pages.service.store.write() as session:
        for row in session.query(Checkpoint):
            row.holds = CheckpointContents(kinds=["model", "optimizer"]).model_dump()
    page = pages.open("run", id=pages.seed.runs["nan"])
    button(page, "Resume with changes").click().run()
    text = shown(page)
    assert "**Learning rate** 0.001 → 0.0001." in text and "brings back" in text


def test_the_list_names_what_each_holds(pages: Pages) -> None:
    opened(pages, CheckpointContents(kinds=["model", "step"]))
    page = pages.open("run", id=pages.seed.runs[RUN], tab="checkpoints")
    assert "| model, step |" in shown(page)
