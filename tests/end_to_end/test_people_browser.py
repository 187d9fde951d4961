"""Four people in two projects: invited, signed in at a provider, denied with a sentence, stopping, undoing, leaving."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.dashboard.visits import sign_out
from tests.end_to_end.browsers import Chromium, Visit
from tests.end_to_end.product import Product, wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it still imports a module that Authlib gives up
    from oidc_provider_mock import User, run_server_in_thread

pytestmark = pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning")
PASSWORD = "correct horse"


@pytest.fixture
def issuer() -> Iterator[str]:
    """A provider that knows the member of the lab."""
    ben = User(sub="ben", claims={"email": "ben@lab.example", "email_verified": True})
    with run_server_in_thread(user_claims=[ben]) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def lab(tmp_path: Path, issuer: str) -> Iterator[Product]:
    """A dashboard and a worker whose people may sign in at that provider."""
    env = {
        "RANKZERO_OIDC_ISSUER": issuer,
        "RANKZERO_OIDC_CLIENT_ID": "rankzero",
        "RANKZERO_OIDC_CLIENT_SECRET": "hush",
        "RANKZERO_OIDC_NAME": "Lab ID",
    }
    product = Product(tmp_path / "data", env=env)
    try:
        product.start()
        yield product
        product.delete_runs()
        assert product.stop() == 0, product.tail()
    finally:
        product.clean_up()


@pytest.fixture
def visits(browser: Chromium) -> Iterator[list[Visit]]:
    """The browsers of owner, admin, member and viewer, open at the same time."""
    with ExitStack() as stack:
        yield [stack.enter_context(browser.apart()) for _ in range(4)]


def test_four_people_share_one_dashboard(lab: Product, visits: list[Visit], tmp_path: Path) -> None:
    owner, eva, ben, vik = (visit.new_page() for visit in visits)
    owner.goto(f"{lab.url}/?token={lab.token()}")
    made = lab.request("PUT", "/api/projects/speech/privacy", json={"is_private": True})
    assert made.status_code == 200, made.text
    accept(eva, invite(lab, owner, "eva@lab.example", "admin"))
    accept(vik, invite(lab, owner, "vik@lab.example", "viewer"))
    accept_at_provider(ben, invite(lab, owner, "ben@lab.example", "member"))

    (waits := tmp_path / "waits.py").write_text("import time\ntime.sleep(100_000)\n")
    secret_run = lab.launch(
        waits, launcher="python", name="only the owner's", project="speech", gpus_per_node=1, stop_grace_s=5
    )
    run_id = launch(lab, ben)
    lab.wait_step(run_id, 1)
    lab.yield_cores(run_id)
    is_denied(lab, vik, run_id, secret_run)
    sees_own_runs(lab, ben, eva)
    stop_and_undo_deletion(lab, eva, run_id)
    leave(lab, ben, visits[2])

    owner.goto(f"{lab.url}/audit")
    for name, action in (("ben", "launched"), ("eva", "stopped"), ("eva", "deleted"), ("eva", "restored")):
        row = owner.get_by_role("row").filter(has_text=re.compile(rf"{name}\s*{action}.*{run_id}"))
        expect(row.first).to_be_visible()
    assert [error for visit in visits for error in visit.errors] == []


def invite(lab: Product, owner: Page, email: str, role: str) -> str:
    """Invite somebody on the People page; returns the link."""
    owner.goto(f"{lab.url}/people")
    field = owner.get_by_label("E-mail")
    field.fill(email)
    field.press("Enter")
    owner.locator(".st-key-invite_role").get_by_role("combobox").click()
    owner.get_by_role("option", name=re.compile(f"^{role}:")).click()
    owner.get_by_role("button", name="Invite", exact=True).click()
    link = owner.locator("code", has_text="/invite/")
    expect(link).to_be_visible()
    expect(owner.get_by_text(f"Send this to {email}")).to_be_visible()
    return link.inner_text().strip()


def accept(page: Page, link: str) -> None:
    """Make an account with a password."""
    page.goto(link)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.locator(".st-key-bar")).to_be_visible()


def accept_at_provider(page: Page, link: str) -> None:
    """Make an account by signing in at the provider."""
    page.goto(link)
    page.get_by_role("link", name=re.compile("Lab ID")).click()
    page.get_by_role("button", name="ben", exact=True).click()
    expect(page.locator(".st-key-bar")).to_be_visible()
    expect(page.locator(".st-key-bar_person").get_by_role("button", name="ben")).to_be_visible()


def launch(lab: Product, ben: Page) -> str:
    """Launch from the form; returns the run's id."""
    ben.goto(f"{lab.url}/launch")
    button = ben.get_by_role("button", name="Launch", exact=True)
    expect(button).to_be_enabled()
    ben.get_by_label("Name", exact=True).fill("bens own")
    ben.get_by_label("Epochs", exact=True).fill("10000")
    ben.get_by_label("Processes per node", exact=True).fill("1")
    expect(ben.get_by_text("1 node × 1 process = 1 rank")).to_be_visible()
    button.click()
    ben.wait_for_url(re.compile(r"/run\?id=[a-z0-9]{10}$"))
    assert lab.run(ben.url[-10:])["by"] == "ben"
    return ben.url[-10:]


def is_denied(lab: Product, vik: Page, run_id: str, secret_run: str) -> None:
    """A viewer sees the run and may not stop it; the private project is as if it did not exist."""
    vik.goto(f"{lab.url}/run?id={run_id}")
    stop = vik.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_be_disabled()
    hover_until_said(vik, stop, "You are a viewer of project default: only members can stop this.")
    vik.goto(f"{lab.url}/run?id={secret_run}")
    expect(vik.get_by_role("link", name="All runs")).to_be_visible()
    vik.goto(f"{lab.url}/people")
    expect(vik.get_by_text("People are invited, and given roles, by eva and owner.")).to_be_visible()
    vik.goto(f"{lab.url}/audit")
    expect(vik.get_by_text("only admins can read the audit log")).to_be_visible()


def hover_until_said(page: Page, button: Locator, words: str) -> None:
    """Point at a button that cannot be clicked, anew where the page has moved it away meanwhile."""

    def is_said() -> bool:
        page.mouse.move(0, 0)
        button.hover(force=True)
        with suppress(AssertionError):
            expect(page.get_by_text(words)).to_be_visible(timeout=5000)
            return True
        return False

    wait_for(is_said, words)


def sees_own_runs(lab: Product, ben: Page, eva: Page) -> None:
    """*Mine* holds one's own runs only, and nobody but the owner sees the private project."""
    for page, count in ((ben, 1), (eva, 0)):
        page.goto(lab.url)
        expect(page.get_by_text("bens own")).to_be_visible()
        expect(page.get_by_text("only the owner's")).to_have_count(0)
        page.get_by_role("button", name="Mine").click()
        expect(page.get_by_text("bens own")).to_have_count(count)


def stop_and_undo_deletion(lab: Product, eva: Page, run_id: str) -> None:
    """An admin stops and deletes another's run, and brings it back."""
    eva.goto(f"{lab.url}/run?id={run_id}")
    eva.get_by_role("button", name="Stop", exact=True).click()
    eva.get_by_role("button", name="Stop the run").click()
    lab.wait_state(run_id, "stopped")
    expect(eva.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    eva.get_by_role("button", name="More").click()
    eva.get_by_role("option", name="Delete").or_(eva.get_by_role("menuitem", name="Delete")).first.click()
    eva.get_by_role("button", name="Delete the run").click()
    expect(eva.get_by_text("was deleted. Can be restored until")).to_be_visible()
    assert lab.request("GET", f"/api/runs/{run_id}").status_code == 404
    eva.get_by_role("button", name="Undo").click()
    wait_for(lambda: lab.request("GET", f"/api/runs/{run_id}").status_code == 200, "the run to be back")


def leave(lab: Product, here: Page, visit: Visit) -> None:
    """Signing out in one tab ends the other, and Back shows nothing."""
    there = visit.new_page()
    there.goto(f"{lab.url}/nodes")
    expect(there.locator(".st-key-bar")).to_be_visible()
    sign_out(here)
    for page in (here, there):
        expect(page).to_have_url(re.compile("/login"))
    there.go_back()
    expect(there.get_by_role("link", name="Sign in with Lab ID")).to_be_visible()
    assert there.locator(".stApp").count() == 0
