"""The Scaling page: empty, all studies, one study; and the form that cites it."""

from __future__ import annotations

import json

from db.studies import studies
from domain.scaling.plan import ScalingPlan
from tests.dashboard.pages import button, links, served, texts
from tests.dashboard.seeded_studies import seed_batches, seed_study


def picture(page) -> dict:
    """What the page gives to its component."""
    (drawn,) = [part for part in page.get("bidi_component") if part.proto.component_name == "rankzero.study"]
    return json.loads(drawn.proto.json)


def test_the_page_is_empty_lists_studies_and_shows_one(tmp_path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n"
        "dist.init_process_group('gloo')\nmodel = DistributedDataParallel(model)\n"
    )
    with served(tmp_path / "data") as pages:
        empty = pages.open("scaling")
        assert not empty.exception
        assert "rankzero scale train.py --gpus 1,2,4,8" in texts(empty)
        study_id = seed_study(pages.seed, str(script))
        (row,) = picture(pages.open("scaling"))["rows"]
        assert (row["cells"][:4], row["address"]) == (
            ["train", "1, 2, 4, 8, 12", "weak", "succeeded"], f"scaling?id={study_id}"
        )  # fmt: skip
        page = pages.open("scaling", id=study_id)
        assert not page.exception
        assert "4 GPUs: 3.4x, 86%; 8 GPUs" in texts(page).replace("\\", "")
        drawn = picture(page)
        assert [round(point["speedup"], 2) for point in drawn["chart"]["points"]] == [1, 1.87, 3.45, 4.12]
        assert all(point["low"] < point["speedup"] < point["high"] for point in drawn["chart"]["points"])
        assert drawn["chart"]["rule"] == [[2, 1.8, 1.8], [4, 3.5, 3.5], [8, 6.0, 7.0]]
        assert drawn["rows"][3]["cells"][-1] == "communication"
        assert drawn["rows"][4]["cells"][-1].endswith("failed: GPU 3 ran out of memory")
        assert "There is no study" in texts(pages.open("scaling", id="nope")).replace("\\", "")
        form = pages.open("launch")
        form.segmented_control(key="launch_source").set_value("Script").run()
        form.text_input(key="launch_script").set_value(str(script))
        form.text_input(key="launch_gpus_per_node").set_value("4").run()
        assert links(form)["Reached 86% on 4 GPUs in a scaling study"] == f"scaling?id={study_id}"
        form.text_input(key="study_gpus").set_value("1,x")
        button(form, "Start the study").click().run()
        assert "must be numbers, for example 1,2,4" in texts(form).replace("\\", "")
        form.text_input(key="study_gpus").set_value("1, 2")
        button(form, "Start the study").click().run()
        assert not form.exception
        study = studies.studies(pages.service.store, ScalingPlan)[0]
        assert ([point.devices for point in study.plan.points], study.plan.mode, study.plan.steps) == (
            [1, 2],
            "weak",
            100,
        )


def test_a_study_in_progress_can_be_stopped(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        study_id = seed_study(pages.seed, is_ended=False)
        page = pages.open("scaling", id=study_id)
        assert "running, weak scaling, 100 steps a run" in texts(page)
        button(page, "Stop").click().run()
        assert studies.study(pages.service.store, study_id, ScalingPlan).stop_requested_at is not None
        assert "stopping" in texts(page)


def test_several_global_batches_lie_side_by_side_and_the_form_asks_for_them(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        study_id = seed_batches(pages.seed)
        page = pages.open("scaling", id=study_id)
        assert not page.exception
        shown = texts(page).replace("\\", "")
        assert "strong scaling, global batches 256, 512, 1\u202f024 and 2\u202f048, 246 k samples a run" in shown
        assert "train/loss is 24% higher with 2 048: choose 1 024. With 1 024: 4 GPUs: 3.0x, 76%" in shown
        drawn = picture(page)
        assert [curve["name"] for curve in drawn["chart"]["curves"]][::3] == [
            "global batch 256",
            "global batch 2\u202f048",
        ]
        batches = drawn["batches"]
        assert batches["columns"] == ["Global batch", "256", "512", "1\u202f024", "2\u202f048"]
        titles = [row["title"] for row in batches["rows"]]
        assert titles == [
            "Samples/s on 1 GPU", "Samples/s on 2 GPUs", "Samples/s on 4 GPUs",
            "Learning rate (linear, 0.1 for 256)", "train/loss after 246 k samples",
        ]  # fmt: skip
        assert [cell["text"] for cell in batches["rows"][3]["cells"]] == ["0.1", "0.2", "0.4", "0.8"]
        assert [cell.get("mark") for cell in batches["rows"][4]["cells"]] == [None, None, None, "worse"]
        assert batches["rows"][0]["cells"][3]["text"] == "failed"
        assert [cell.get("mark") for cell in batches["rows"][0]["cells"]].count("flat") == 1
        compared = links(page)["Compare their losses by samples"]
        assert compared.startswith("compare?runs=") and compared.endswith("&x=samples")
        assert "global batches" in picture(pages.open("scaling"))["rows"][0]["cells"][2]

        running = pages.open("scaling", id=seed_batches(pages.seed, most=2, has_losses=False, is_ended=False))
        assert not running.exception and "running, strong scaling" in texts(running)
        form = pages.open("launch")
        form.text_input(key="launch_batch_size").set_value("32").run()
        form.text_input(key="study_gpus").set_value("1,2")
        form.text_input(key="study_batches").set_value("64,none").run()
        button(form, "Start the study").click().run()
        assert "Global batches must be numbers" in texts(form).replace("\\", "")
        form.text_input(key="study_batches").set_value("64, 127").run()
        button(form, "Start the study").click().run()
        assert "the global batch of 127 cannot be divided among 2 ranks" in texts(form).replace("\\", "")
        form.text_input(key="study_batches").set_value("64, 128").run()
        button(form, "Start the study").click().run()
        assert not form.exception
        study = studies.studies(pages.service.store, ScalingPlan)[0]
        assert study.plan.mode == "strong"
        assert [(one.devices, one.global_batch_size, one.steps) for one in study.plan.points] == [
            (1, 64, 220), (2, 64, 220), (1, 128, 100), (2, 128, 100)
        ]  # fmt: skip
