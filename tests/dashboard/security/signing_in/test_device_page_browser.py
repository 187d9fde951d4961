"""The page that `rankzero login` opens, in Chromium, beside the command that waits for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.dashboard.running import Running
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def on_port() -> bool:
    return True


def waiting_login(shared: Running, home: Path) -> subprocess.Popen[str]:
    """`rankzero login --no-browser` of a machine with a home of its own."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("RANKZERO_", "XDG_"))}
    argv = [sys.executable, "-P", "-m", "cli.main", "login", shared.url, "--no-browser"]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, env=own | {"HOME": str(home)})


def test_person_compares_the_code_and_decides(shared: Running, browser: Chromium, tmp_path: Path) -> None:
    with browser.visit() as visit:
        page = visit.new_page()
        page.goto(f"{shared.url}/login")
        page.get_by_label("Token").fill(shared.token)
        page.get_by_role("button", name="Sign in").click()
        expect(page).not_to_have_url(f"{shared.url}/login")
        for button, ending, code in (("Allow", "is allowed", 0), ("Deny", "Denied", 1)):
            login = waiting_login(shared, tmp_path)
            try:
                assert login.stderr is not None
                address = re.search(r"http\S+", login.stderr.readline())
                assert address is not None
                page.goto(address[0])
                expect(page.locator(".code")).to_have_text(address[0][-9:])
                expect(page.get_by_text("act as owner")).to_be_visible()
                page.get_by_role("button", name=button).click()
                expect(page.get_by_role("heading")).to_contain_text(ending)
                out, err = login.communicate(timeout=180)
            finally:
                login.kill()
                login.wait()
            assert login.returncode == code, err
            assert ("Logged in" in out) is (code == 0)
            for stored in tmp_path.rglob("logins.json"):
                stored.unlink()
