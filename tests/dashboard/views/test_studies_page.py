"""The Studies page: sweeps and scaling studies in one place, and the way to a new one of each."""

from __future__ import annotations

import pytest

from tests.dashboard.pages import links, served, texts
from tests.dashboard.seeded_studies import seed_study
from tests.dashboard.seeded_sweeps import seed_sweep


def test_both_lists_are_on_one_page_with_the_way_to_new_ones(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        empty = pages.open("studies")
        assert not empty.exception
        assert [header.value for header in empty.header] == ["Sweeps", "Scaling"]
        assert "rankzero sweep train.py" in texts(empty) and "rankzero scale train.py" in texts(empty)
        assert links(empty) == {"New sweep": "launch?new=sweep", "New scaling study": "launch?new=study"}
        seed_study(pages.seed)
        seed_sweep(pages.seed)
        full = pages.open("studies")
        lists = [p for p in full.get("bidi_component") if p.proto.component_name == "rankzero.scaling"]
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
