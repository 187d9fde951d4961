"""A page acts for the person whose browser it is, and for nobody while that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.security.guard import visits
from dashboard.security.guard.visits import HEADER, STREAM, Visits
from db import acting
from domain.people.rights import NOBODY, PROGRAM, Rights
from domain.people.roles import Role
from tests.dashboard.pages import Pages, served
from tests.dashboard.persons import person

THEN = Rights("ana", everywhere=Role.ADMIN)
"""Her rights when she opened the page; she is a member by now."""


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as opened, acting.acting(PROGRAM):
        person(opened.service, "ana", Role.MEMBER)
        yield opened


@contextmanager
def page_of(rights: Rights, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> Iterator[Visits]:
    """Be in a thread of a person's open page, as Streamlit tells it."""
    open_pages, scope = Visits(pages.service.identities), dict[str, Any](path=STREAM, headers=[])
    with open_pages.naming(scope, rights):
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        monkeypatch.setattr(visits.st, "context", SimpleNamespace(headers=headers))
        yield open_pages


def test_page_acts_with_the_present_rights_of_its_visitor(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    with page_of(THEN, pages, monkeypatch) as open_pages:
        open_pages.enter()
        assert (acting.rights().by, acting.rights().everywhere) == ("ana", Role.MEMBER)


def test_page_acts_for_nobody_while_rights_cannot_be_read(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    with page_of(THEN, pages, monkeypatch) as open_pages:
        (pages.service.settings.data / "rankzero.db").unlink()
        open_pages.enter()
        assert acting.rights() == NOBODY


def test_page_that_no_visit_names_acts_for_nobody(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits.st, "context", SimpleNamespace(headers={HEADER: "made up"}))
    Visits(pages.service.identities).enter()
    assert acting.rights() == NOBODY
