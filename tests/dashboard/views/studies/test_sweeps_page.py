"""The Sweeps page: empty, all sweeps, one sweep, its best with three seeds; and the form that starts one."""

from __future__ import annotations

import json

import pytest

from db.runs import run_list, run_queries, run_requests
from db.runs.run_list import RunSelection
from db.studies import studies
from domain.people.rights import Rights
from domain.people.roles import Role
from domain.spec import RunEdit
from domain.sweeps import SweepPlan, best_trial, params_in_words
from tests.dashboard.pages import button, links, served, texts, visited_by
from tests.dashboard.seeded_sweeps import seed_sweep


def rows(page) -> list[dict]:
    """The rows of the list."""
    (drawn,) = [part for part in page.get("bidi_component") if part.proto.component_name == "rankzero.study"]
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
        button(page, "Repeat best with 3 seeds").click().run()
        assert not page.exception
        launched = [
            run_queries.run(pages.service.store, links(page)[f"seed {seed}"].partition("=")[2], 0.0)
            for seed in (1, 2, 3)
        ]
        assert [run.spec.seed for run in launched if run] == [1, 2, 3]
        assert links(page)["Compare them"].count("%2C") == 2
        assert links(page)["Compare them"].endswith("group=all")
        assert links(page)["Compare trials"].count("%2C") == 12
        assert len({run.spec.lr for run in launched if run}) == 1
        again = links(pages.open("sweeps", id=sweep_id))
        assert [again[f"seed {seed}"] for seed in (1, 2, 3)] == [links(page)[f"seed {seed}"] for seed in (1, 2, 3)]
        button(page, "Stop").click().run()
        assert studies.study(pages.service.store, sweep_id, SweepPlan).stop_requested_at is not None
        assert "stopping" in texts(page)
        assert "There is no study" in texts(pages.open("sweeps", id="nope")).replace("\\", "")


def said(page) -> str:
    return texts(page).replace("\\", "")


def test_fields_with_several_values_make_a_sweep(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        form = pages.open("launch")
        assert "Sweep of" not in texts(form)
        form.text_input(key="launch_lr").set_value("0.1, 0.2").run()
        form.text_input(key="launch_accumulate").set_value("1,2").run()
        form.text_input(key="launch_args").set_value("--model {cnn,resnet18}").run()
        assert not form.exception
        assert "Sweep of 8 runs" in texts(form)
        (trials,) = [code.value for code in form.code if "accumulate=1" in code.value]
        assert trials.splitlines()[0] == "accumulate=1 lr=0.1 model=cnn" and trials.endswith("and 2 more")
        (command,) = [code.value for code in form.code if "torchrun" in code.value]
        assert "--model cnn" in command and "--lr=0.1" in command  # of the first trial
        form.segmented_control(key="sweep_early_stop").set_value("asha").run()
        form.number_input(key="sweep_first_rung").set_value(400).run()
        button(form, "Launch the sweep of 8 runs").click().run()
        assert not form.exception
        (made,) = studies.studies(pages.service.store, SweepPlan)
        assert (made.plan.early_stop, made.plan.first_rung, made.plan.goal) == ("asha", 400, "min")
        assert (made.plan.count, made.plan.metric, made.spec.target) == (8, "val/loss", "image_classifier")
        assert (made.spec.lr, made.spec.args) == (0.003, ["--model", "{model}"])


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("lr", "2..1", "Learning rate must be a list of values, or a range from a lower to a higher number."),
        ("lr", "0.1, fast", "Learning rate must be a number, got 'fast'."),
        ("batch_size", "16..64.5", "Batch per GPU must be a whole number, got 64.5."),
        ("seed", "1, 1", "Seed names a value twice."),
        ("args", "{1,2}", "{1,2} needs an option before it, for example --width {1,2}."),
        (
            "gpus_per_node",
            "1,2,4..8",
            "GPUs per node: a range must be LOW..HIGH or LOW..HIGH:log with numbers",
        ),
    ],
)
def test_values_that_make_no_sense_are_said_at_their_field(tmp_path, field: str, text: str, sentence: str) -> None:
    with served(tmp_path / "data") as pages:
        form = pages.open("launch")
        form.text_input(key=f"launch_{field}").set_value(text).run()
        assert not form.exception
        assert sentence in said(form)
        assert next(one for one in form.button if one.key == "launch_now").disabled


def test_several_seeds_are_a_run_each(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        form = pages.open("launch")
        form.text_input(key="launch_seed").set_value("1, 2, 3").run()
        assert "3 runs, one for each seed" in texts(form) and "Sweep of" not in texts(form)
        (command,) = [code.value for code in form.code if "torchrun" in code.value]
        assert "--seed=1" in command
        button(form, "Launch 3 runs, one for each seed").click().run()
        assert not form.exception
        assert studies.studies(pages.service.store, SweepPlan) == []
        launched = run_list.listed(pages.service.store, 0.0, RunSelection(), None, 10)
        assert sorted(run.spec.seed or 0 for run in launched) == [1, 2, 3]
        form.text_input(key="launch_lr").set_value("0.1, 0.2").run()
        assert "Sweep of 6 runs" in texts(form)


def test_parameters_without_a_field_are_lines_and_a_script_that_does_not_take_one_says_so(tmp_path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--width', type=int, default=64)\n"
        "parser.parse_args()\n"
    )
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        form = pages.open("launch")
        form.text_area(key="sweep_parameters").set_value("precision=fp32,bf16").run()
        assert "Sweep of 2 runs" in texts(form)
        form.text_area(key="sweep_parameters").set_value("precision=fp32,bf17").run()
        assert "Precision must be one of" in said(form)
        form.text_area(key="sweep_parameters").set_value("").run()
        form.segmented_control(key="launch_source").set_value("Script").run()
        form.text_input(key="launch_script").set_value(str(script)).run()
        width = next(one for one in form.text_input if str(one.key).endswith("_width"))
        width.set_value("64..wide").run()
        assert "a range must be LOW..HIGH or LOW..HIGH:log with numbers" in said(form)
        next(one for one in form.text_input if str(one.key).endswith("_width")).set_value("64..256").run()
        assert "Name the series that is compared" in said(form)
        form.text_input(key="sweep_metric").set_value("val/accuracy").run()
        assert not form.exception
        assert "Sweep of 20 runs" in texts(form)
        form.text_input(key="launch_lr").set_value("0.1,0.2").run()
        assert "has no option 'lr'; it has width" in said(form)
        form.text_input(key="launch_lr").set_value("").run()
        button(form, "Launch the sweep of 20 runs").click().run()
        assert not form.exception
        (made,) = studies.studies(pages.service.store, SweepPlan)
        assert (made.plan.goal, made.plan.parameters["width"].low, made.spec.args) == ("max", 64, [])


def test_a_trial_that_was_moved_to_a_hidden_project_is_counted_and_not_shown(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        sweep_id = seed_sweep(pages.seed)
        sweep = studies.study(pages.service.store, sweep_id, SweepPlan)
        best = best_trial(sweep.plan, sweep.trials)
        assert best and best.run_id
        run_requests.edit(pages.service.store, best.run_id, RunEdit(project="moonshot"), 0.0)
        with visited_by(pages, Rights("max", everywhere=Role.MEMBER, private=frozenset({"moonshot"}))):
            page, (row,) = pages.open("sweeps", id=sweep_id), rows(pages.open("sweeps"))
        assert not page.exception
        assert "running, 13 of 14 trials, tpe" in texts(page)
        assert "1 trial is hidden: its run is in a project that you do not see." in said(page)
        assert row["cells"][2] == "13 of 14" and "Best: val/loss" in said(page)
        assert best.run_id not in str(links(page)) and params_in_words(best.params) not in f"{said(page)} {row}"
