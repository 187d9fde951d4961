"""The Studies page: sweeps and scaling studies in one place, and the way to a new one of each."""

from __future__ import annotations

import pytest

from dashboard.studies.scaling_document import document
from db import acting
from db.runs import run_requests
from db.studies import studies
from domain.people.rights import Rights
from domain.people.roles import Role
from domain.scaling.plan import ScalingPlan
from domain.spec import RunEdit
from tests.dashboard.pages import links, served, texts, visited_by
from tests.dashboard.seeded_studies import seed_study
from tests.dashboard.seeded_sweeps import seed_sweep


def test_both_lists_are_on_one_page_with_the_way_to_new_ones(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        empty = pages.open("studies")
        assert not empty.exception
        assert [header.value for header in empty.header] == ["Sweeps", "Scaling"]
        assert "rankzero sweep train.py" in texts(empty) and "rankzero scale train.py" in texts(empty)
        assert links(empty) == {"New sweep": "launch?new=sweep", "New scaling study": "launch?new=study"}
        with visited_by(pages, Rights("vic", everywhere=Role.VIEWER)):
            seen = texts(pages.open("studies"))
        assert "rankzero" not in seen and seen.count("There is none that you may see.") == 2
        seed_study(pages.seed)
        seed_sweep(pages.seed)
        full = pages.open("studies")
        lists = [p for p in full.get("bidi_component") if p.proto.component_name == "rankzero.study"]
        assert len(lists) == 2 and not full.exception


@pytest.mark.parametrize("asked", ["sweep", "study"])
def test_a_new_study_opens_its_popover_of_the_form_once(tmp_path, asked) -> None:
    with served(tmp_path / "data") as pages:
        form = pages.open("launch", new=asked)
        assert not form.exception and form.session_state[f"launch_{asked}"] is True
        form.session_state[f"launch_{asked}"] = False
        form.text_input(key="launch_lr").set_value("0.1").run()
        assert form.session_state[f"launch_{asked}"] is False
        form.query_params["new"] = "nonsense"
        assert not form.run().exception


def test_a_point_whose_run_was_moved_to_a_hidden_project_shows_nothing_of_it(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        study_id = seed_study(pages.seed)
        moved, kept = pages.seed.runs[f"{study_id} 1"], pages.seed.runs[f"{study_id} 2"]
        run_requests.edit(pages.service.store, moved, RunEdit(project="moonshot"), 0.0)
        rights = Rights("mia", everywhere=Role.MEMBER, private=frozenset({"moonshot"}))
        with visited_by(pages, rights), acting.acting(rights):
            page, listed = pages.open("scaling", id=study_id), pages.open("studies")
            study = studies.study(pages.service.store, study_id, ScalingPlan)
            shown = document(study, pages.service.figures)
        assert not page.exception and not listed.exception
        assert "2 GPUs: its run is in a project that you do not see." in texts(page).replace("\\", "")
        point = shown["points"][1]
        assert (point["run"], point["samples_per_s"], point["speedup"]) == (None, None, None)
        assert shown["points"][2]["run"] == kept and shown["state"] == "succeeded"
        everything = document(studies.study(pages.service.store, study_id, ScalingPlan), pages.service.figures)
        assert everything["points"][1]["run"] == moved
        assert moved not in f"{page.get('bidi_component')} {listed.get('bidi_component')} {shown}"
