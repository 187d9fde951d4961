"""Signing in and out in Chromium: invitation, password, provider, and sessions that end while pages are open."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from threading import Event

import pytest
from playwright.sync_api import Page, Route, expect

from dashboard.security.signing_in import provider
from dashboard.service.service import Service
from dashboard.settings import Settings
from db.people import accounts, passwords
from domain.people.roles import Role
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.persons import person
from tests.dashboard.running import LIMIT_S
from tests.dashboard.visits import axe_faults, look, sign_out, signed_in
from tests.db.templates import new_data
from tests.end_to_end.browsers import Chromium
from tests.end_to_end.product import wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it still imports a module that Authlib gives up
    from oidc_provider_mock import User, run_server_in_thread

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning")]
PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard waits for its provider as long as this machine stands still."""
    monkeypatch.setattr(provider, "TIMEOUT_S", LIMIT_S)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """A provider that knows one person."""
    ben = User(sub="ben", claims={"email": "ben@lab.example", "email_verified": True})
    with run_server_in_thread(user_claims=[ben]) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory, issuer: str) -> Iterator[Browsed]:
    port = opened(tmp_path_factory.mktemp("port") / "data")
    port.close()
    settings = Settings(
        data=new_data(tmp_path_factory.mktemp("signing-in") / "data"),
        port=port.settings.port,
        oidc_issuer=issuer,
        oidc_client_id="rankzero",
        oidc_client_secret="hush",
        oidc_name="Lab ID",
        email_domains=["lab.example"],
    )
    with browsed(Service.open(settings)) as it:
        yield it


def shows_sign_in(page: Page, dashboard: Browsed) -> None:
    expect(page).to_have_url(re.compile(re.escape(dashboard.url) + "/login"))
    expect(page.get_by_role("link", name="Sign in with Lab ID")).to_be_visible()


def test_an_invited_person_makes_an_account_and_signs_in_again(browser: Chromium, dashboard: Browsed) -> None:
    _, secret = dashboard.service.people.invite("ana@lab.example", "member")
    with browser.visit() as visit:
        page = visit.new_page()
        page.goto(f"{dashboard.url}/invite/{secret}")
        expect(page.get_by_text("You are invited as ana@lab.example, as a member of all projects")).to_be_visible()
        assert axe_faults(page) == []
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Create account").click()
        expect(page.locator(".st-key-bar")).to_be_visible()
        page.goto(f"{dashboard.url}/invite/{secret}")
        expect(page.get_by_role("heading")).to_have_text("This invitation has been used.")
        visit.context.clear_cookies()
        page.goto(f"{dashboard.url}/nodes")
        assert axe_faults(page) == []
        page.get_by_label("E-mail or name").fill("ana")
        page.get_by_label("Password").fill("wrong, but long")
        page.get_by_role("button", name="Sign in", exact=True).first.click()
        expect(page.get_by_role("alert")).to_have_text("Incorrect name or password.")
        page.get_by_label("E-mail or name").fill("ana")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).first.click()
        expect(page).to_have_url(f"{dashboard.url}/nodes")
        expect(page.locator(".st-key-bar")).to_be_visible()


def test_a_link_for_a_new_password_is_shown_where_it_was_made(browser: Chromium, dashboard: Browsed) -> None:
    person(dashboard.service, "dan", Role.MEMBER)
    with signed_in(browser, dashboard) as visit:
        page = look(visit, dashboard, "/people").page
        page.get_by_role("button", name="Invite", exact=True).hover()
        assert axe_faults(page) == [], "also of the button under the pointer"
        page.locator(".st-key-person_link_dan").get_by_role("button").click()
        expect(page.get_by_text("Send this to dan@lab.example")).to_be_visible()
        page.goto(page.locator("code", has_text="/invite/").inner_text().strip())
        expect(page.get_by_text("You are dan.")).to_be_visible()


def test_somebody_signs_in_at_the_provider(browser: Chromium, dashboard: Browsed) -> None:
    with browser.visit() as visit:
        page = visit.new_page()
        page.goto(f"{dashboard.url}/nodes")
        page.get_by_role("link", name="Sign in with Lab ID").click()
        page.get_by_role("button", name="ben", exact=True).click()
        expect(page).to_have_url(f"{dashboard.url}/nodes")
        expect(page.locator(".st-key-bar")).to_be_visible()
        sign_out(page)
        shows_sign_in(page, dashboard)


def test_back_shows_nothing_after_signing_out_in_another_tab(browser: Chromium, dashboard: Browsed) -> None:
    with signed_in(browser, dashboard) as visit:
        here, there = look(visit, dashboard, "/nodes").page, look(visit, dashboard, "/").page
        here.goto(f"{dashboard.url}/launch")
        expect(here.locator(".st-key-bar")).to_be_visible()
        sign_out(there)
        for page in (here, there):
            shows_sign_in(page, dashboard)
        wait_for(lambda: not dashboard.service.sessions._open, "the WebSockets to close")
        for _ in range(2):
            here.go_back()
            expect(here.get_by_role("link", name="Sign in with Lab ID")).to_be_visible()
            assert here.locator(".stApp").count() == 0


def test_what_was_filled_in_outlives_a_session_that_ended(browser: Chromium, dashboard: Browsed) -> None:
    service, name = dashboard.service, person(dashboard.service, "lea", Role.MEMBER)
    person(service, "max", Role.MEMBER)
    for who in (name, "max"):
        accounts.set_password(service.store, who, passwords.hashed(PASSWORD))
    with signed_in(browser, dashboard, user=name) as visit:
        page = look(visit, dashboard, "/launch").page
        field = page.get_by_role("textbox", name="Name", exact=True)
        for who, kept in ((name, "keep me"), ("max", "")):
            field.fill("keep me")
            page.wait_for_function("() => sessionStorage.getItem('rankzero.form')?.includes('keep me')")
            service.sessions.end_of_person(name)
            expect(page.get_by_role("status")).to_contain_text("Your session has ended.")
            page.get_by_label("E-mail or name").fill(who)
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Sign in", exact=True).first.click()
            expect(page).to_have_url(f"{dashboard.url}/launch")
            expect(page.get_by_role("button", name="Launch", exact=True)).to_be_enabled()
            expect(field).to_have_value(kept)
        page.wait_for_function("() => !sessionStorage.getItem('rankzero.form')")


@pytest.mark.parametrize("how", ["removed", "password", "everywhere"])
def test_a_session_that_ends_elsewhere_ends_in_open_tabs(browser: Chromium, dashboard: Browsed, how: str) -> None:
    service, name = dashboard.service, person(dashboard.service, f"cem-{how}", Role.ADMIN)
    with signed_in(browser, dashboard, user=name) as visit:
        page = look(visit, dashboard, "/nodes").page
        if how == "removed":
            service.people.remove(name)
        else:
            service.sessions.end_of_person(name)
        shows_sign_in(page, dashboard)
        assert page.locator(".stApp").count() == 0


def test_a_session_that_ends_while_its_page_is_loaded_leads_to_the_form(browser: Chromium, dashboard: Browsed) -> None:
    name, held, released = person(dashboard.service, "eve", Role.ADMIN), list[Route](), Event()
    with signed_in(browser, dashboard, user=name) as visit:
        page = visit.new_page()
        modules = re.compile("/assets/(live|server)/")
        page.route(modules, lambda route: route.continue_() if released.is_set() else held.append(route))
        page.goto(f"{dashboard.url}/nodes")
        expect(page.locator(".st-key-bar")).to_be_visible()
        wait_for(lambda: page.wait_for_timeout(20) or held, "the page to ask for its modules")
        dashboard.service.people.remove(name)
        released.set()
        for module in held:
            module.continue_()
        shows_sign_in(page, dashboard)
