"""The Sweeps page: empty, all sweeps, one sweep, its best with three seeds; and the form that starts one."""

from __future__ import annotations

import json

from db.queries import run_queries
from db.sweeps import sweeps
from tests.dashboard.pages import button, links, served, texts
from tests.dashboard.seeded_sweeps import seed_sweep


def rows(page) -> list[dict]:
    """The rows of the list."""
    (drawn,) = [
        part for part in page.get("bidi_component") if part.proto.component_name == "rankzero.scaling"
    ]
    return list(json.loads(drawn.proto.json)["rows"])


def test_the_page_is_empty_lists_sweeps_and_shows_one(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        empty = pages.open("sweeps")
        assert not empty.exception
        assert "rankzero sweep train.py --param lr=1e-4,3e-4,1e-3" in texts(empty)
        sweep_id = seed_sweep(pages.seed)
        (row,) = rows(pages.open("sweeps"))
        assert row["address"] == f"sweeps?id={sweep_id}"
        assert row["cells"][:4] == ["language_model", "lr, accumulate", "13 of 14", "running"]
        page = pages.open("sweeps", id=sweep_id)
        assert not page.exception
        assert "Best: val/loss 0.34" in texts(page).replace("\\", "")
        assert "running, 13 of 14 trials, tpe" in texts(page)
        assert "1 trial pruned: about 0.07 device-hours saved" in texts(page).replace("\\", "")
        button(page, "Launch it with three seeds").click().run()
        assert not page.exception
        launched = [
            run_queries.run(pages.service.store, links(page)[f"seed {seed}"].partition("=")[2], 0.0)
            for seed in (1, 2, 3)
        ]
        assert [run.spec.seed for run in launched if run] == [1, 2, 3]
        assert links(page)["Compare them"].count("%2C") == 2
        assert links(page)["Compare trials"].count("%2C") == 12
        assert len({run.spec.lr for run in launched if run}) == 1
        button(page, "Stop").click().run()
        assert sweeps.sweep(pages.service.store, sweep_id).stop_requested_at is not None
        assert "stopping" in texts(page)
        assert "There is no sweep" in texts(pages.open("sweeps", id="nope")).replace("\\", "")


def test_the_form_starts_a_sweep_and_names_what_is_wrong_with_it(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        form = pages.open("launch")
        button(form, "Start the sweep").click().run()
        assert not form.exception
        assert "Parameters must not be empty" in texts(form).replace("\\", "")
        form.text_area(key="sweep_parameters").set_value("lr=2..1")
        button(form, "Start the sweep").click().run()
        assert "from a lower to a higher number" in texts(form).replace("\\", "")
        form.text_area(key="sweep_parameters").set_value("lr=0.1,0.2\n\naccumulate=1,2")
        form.text_input(key="sweep_metric").set_value("val/loss")
        form.segmented_control(key="sweep_early_stop").set_value("asha").run()
        form.number_input(key="sweep_first_rung").set_value(400)
        button(form, "Start the sweep").click().run()
        assert not form.exception
        (made,) = sweeps.sweeps(pages.service.store)
        assert (made.plan.early_stop, made.plan.first_rung) == ("asha", 400)
        assert (made.plan.count, made.plan.metric, made.spec.target) == (4, "val/loss", "image_classifier")
