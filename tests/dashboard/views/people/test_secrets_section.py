"""Secrets on the Account page and in the launch form: typed once, chosen by name, never shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from db.runs import run_queries
from db.runs.run_requests import specification
from tests.dashboard.pages import Pages, button, served, texts, with_advanced

TOKEN = "hf_AbCdEfGhIjKlMn"
NAMES = "launch_secrets"


def section() -> None:
    from dashboard.service import service
    from dashboard.views.people.secrets_section import show_secrets

    service.act_for_visitor()
    show_secrets(["default", "vision"])


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as opened:
        opened.seed.node("here", 2, kind="cpu")
        yield opened


def typed(page: AppTest, name: str, value: str, owner: str = "yours") -> AppTest:
    page.text_input(key="secret_name").set_value(name)
    page.text_input(key="secret_value").set_value(value)
    page.selectbox(key="secret_owner").set_value(owner)
    return button(page, "Set").click().run()


def test_a_secret_is_set_listed_and_removed(pages: Pages) -> None:
    page = AppTest.from_function(section).run()
    assert "There is no secret yet" in texts(page)
    typed(page, "HF_TOKEN", TOKEN)
    typed(page, "DB_URL", "postgres://me@db/x", "vision")
    assert not page.exception and "`HF_TOKEN`" in texts(page) and "project vision" in texts(page)
    assert "reads like a word" not in texts(page)
    assert page.text_input(key="secret_value").value == "" and TOKEN not in str(
        page.session_state._state.filtered_state
    )
    page.button(key="secret_remove__HF_TOKEN").click().run()
    assert len(pages.service.secrets.every()) == 2, "it asks first"
    button(page, "Remove it").click().run()
    assert [secret.name for secret in pages.service.secrets.every()] == ["DB_URL"]


def test_what_cannot_be_one_is_refused_in_a_sentence(pages: Pages) -> None:
    page = typed(AppTest.from_function(section).run(), "HF_TOKEN", "short")
    assert "at least 8 characters" in texts(page) and not pages.service.secrets.every()


def test_a_value_that_stands_everywhere_is_set_and_doubted(pages: Pages) -> None:
    page = typed(AppTest.from_function(section).run(), "HF_TOKEN", "training")
    assert "HF_TOKEN is set. Its value reads like a word" in texts(page).replace("\\", "")
    assert [one.name for one in pages.service.secrets.every()] == ["HF_TOKEN"]
    assert "reads like a word" not in texts(page.run())


def test_the_form_offers_the_names_and_launches_with_them(pages: Pages) -> None:
    form = with_advanced(pages.open("launch"))
    assert "Secrets: none yet" in texts(form) and NAMES not in {select.key for select in form.multiselect}
    pages.service.secrets.set("HF_TOKEN", TOKEN)
    pages.service.secrets.set("DB_URL", "postgres://me@db/x", "vision")
    form.run()
    assert form.multiselect(key=NAMES).options == ["HF_TOKEN"]
    form.multiselect(key=NAMES).set_value(["HF_TOKEN"]).run()
    assert TOKEN not in texts(form)
    button(form, "Launch").click().run()
    (run,) = run_queries.runs(pages.service.store, pages.service.clock())
    run_id = run.id
    spec = specification(pages.service.store, run_id)
    assert spec is not None and spec.secrets == ["HF_TOKEN"]
    again = with_advanced(pages.open("launch", **{"from": run_id}))
    assert again.multiselect(key=NAMES).value == ["HF_TOKEN"]
    pages.service.secrets.remove("HF_TOKEN")
    again.run()
    assert "There is no secret HF" in texts(again) and button(again, "Launch").disabled
