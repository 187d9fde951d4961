"""Fields of the Launch form keep their places while it is filled in."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.catalogue import Section
from domain.spec import names_in
from tests.dashboard.pages import Pages, served

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--width", type=int, default=8)
args = parser.parse_args()
"""

PLACES = [*names_in(Section.SCALE), *names_in(Section.TRAINING)]


@pytest.fixture
def pages(tmp_path: Path):
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        yield pages


def labels(page) -> list[str]:
    return [one.label for one in (*page.text_input, *page.get("button_group"))]


def named(page, path: str):
    """The form with that path in its field."""
    page.session_state["launch_source"] = "Script"
    page.session_state["launch_script"] = path
    return page.run()


def places(page) -> list[str]:
    """The keys of the places of fields, as they follow each other."""
    found: list[str] = []

    def walk(block) -> None:
        for child in block.children.values():
            key = getattr(getattr(child, "proto", None), "id", "")
            found.extend(name for name in PLACES if key.endswith((f"wide_{name}", f"narrow_{name}")))
            if hasattr(child, "children"):
                walk(child)

    walk(page.main)
    return found


def test_each_field_has_its_place_whatever_is_hidden(pages: Pages, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    page = pages.open("launch")
    assert places(page) == PLACES
    named(page, str(tmp_path / "train.py"))
    assert not page.exception and "Precision" not in labels(page)
    assert places(page) == PLACES


def test_fields_stay_hidden_while_a_path_is_typed(pages: Pages, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    page = named(pages.open("launch"), str(tmp_path / "train.py"))
    for typed in (str(tmp_path / "tra"), ""):
        assert "Precision" not in labels(named(page, typed)), typed
    page.session_state["launch_source"] = "Recipe"
    assert "Precision" in labels(page.run())


def test_an_option_that_the_form_fills_in_is_no_second_field(pages: Pages, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    page = named(pages.open("launch"), str(tmp_path / "train.py"))
    assert labels(page).count("Learning rate") == 1 and "--lr" not in labels(page) and "--width" in labels(page)
