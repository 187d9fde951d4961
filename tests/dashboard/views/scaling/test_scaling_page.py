"""The Scaling page: empty, all studies, one study; and the form that cites it."""

from __future__ import annotations

import json

from db.scaling import studies
from tests.dashboard.pages import button, links, served, texts
from tests.dashboard.seeded_studies import seed_study


def picture(page) -> dict:
    """What the page gives to its component."""
    (drawn,) = [
        part for part in page.get("bidi_component") if part.proto.component_name == "rankzero.scaling"
    ]
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
            ["train.py", "1, 2, 4, 8, 12", "weak", "succeeded"], f"scaling?id={study_id}"
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
        assert "There is no scaling study" in texts(pages.open("scaling", id="nope")).replace("\\", "")
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
        study = studies.studies(pages.service.store)[0]
        assert ([point["devices"] for point in study.points], study.mode, study.steps) == (
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
        assert studies.study(pages.service.store, study_id).stop_requested_at is not None
        assert "stopping" in texts(page)
