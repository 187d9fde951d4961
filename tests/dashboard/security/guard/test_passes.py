"""Passes of TensorBoard's and Perfetto's pages end with the session or token that opened the page."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx2
import pytest

from db import acting
from domain.people.roles import Role, Scope
from domain.people.tokens import TokenWanted
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import Running


def pass_of(dashboard: Running, reader: httpx2.Client, run: str) -> str:
    """The address of a page's part, with the pass that the page carries."""
    page = reader.get(f"/perfetto/{run}/")
    assert page.status_code == 200, page.text
    return f"/perfetto/{run}/" + str(re.search(r'src="([^"]+)"', page.text)[1])  # type: ignore[index]


def is_open(dashboard: Running, address: str) -> bool:
    """Whether the guard lets the request through, whatever it finds behind."""
    statuses = {dashboard.anonymous().get(a).status_code for a in (address, address.replace("index.html", "x.js"))}
    return 401 not in statuses


def sign_out(dashboard: Running, browser: httpx2.Client) -> None:
    assert browser.post("/logout").status_code == 204


def end_all(dashboard: Running, browser: httpx2.Client) -> None:
    dashboard.service.sessions.end_of_person("ana")


@pytest.mark.parametrize("end", [sign_out, end_all])
def test_pass_ends_with_its_session_and_no_other(
    dashboard: Running, end: Callable[[Running, httpx2.Client], None]
) -> None:
    run = dashboard.launch(wait_for_nodes=True)
    person(dashboard.service, "ana", Role.MEMBER)
    person(dashboard.service, "ben", Role.MEMBER)
    browser = browser_of(dashboard, "ana")
    address, other = (pass_of(dashboard, one, run) for one in (browser, browser_of(dashboard, "ben")))
    assert is_open(dashboard, address) and is_open(dashboard, other)
    end(dashboard, browser)
    assert not is_open(dashboard, address)
    assert is_open(dashboard, other)


def test_pass_ends_with_its_access_token(dashboard: Running) -> None:
    run = dashboard.launch(wait_for_nodes=True)
    person(dashboard.service, "ana", Role.MEMBER)
    with acting.acting(dashboard.service.identities.person("ana")):
        _, secret = dashboard.service.access_tokens.make(TokenWanted("mine", Scope.READ))
    reader = dashboard.anonymous(Authorization=f"Bearer {secret}")
    address = pass_of(dashboard, reader, run)
    assert is_open(dashboard, address)
    assert reader.request("DELETE", "/api/tokens/mine").status_code in (200, 204)
    assert not is_open(dashboard, address)
