"""The pages behind nginx, in a browser that reaches them by their name over TLS."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.dashboard.certificates import self_signed
from tests.dashboard.nginx import nginx
from tests.dashboard.program import dashboard
from tests.end_to_end.browsers import CHROMIUM, LIMIT_MS, QUIET

pytestmark = pytest.mark.real

NAME = "rankzero.test"


def test_signing_in_the_pages_and_signing_out_work_behind_nginx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKZERO_TRUSTED_PROXIES", "127.0.0.1")
    monkeypatch.setenv("RANKZERO_ALLOWED_HOSTS", NAME)
    pair = self_signed(tmp_path)
    with (
        dashboard(tmp_path / "data") as program,
        nginx(tmp_path / "nginx", pair, program.about["port"]) as url,
        sync_playwright() as playwright,
    ):
        port = urlsplit(url).port
        options = (*QUIET, f"--host-resolver-rules=MAP {NAME} 127.0.0.1")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options, timeout=LIMIT_MS)
        page = browser.new_context(ignore_https_errors=True).new_page()
        page.set_default_timeout(LIMIT_MS)
        expect.set_options(timeout=LIMIT_MS)
        page.goto(f"https://{NAME}:{port}/nodes")
        page.get_by_label("Token").fill(program.token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".st-key-bar")).to_be_visible()  # drawn over Streamlit's WebSocket
        assert page.url == f"https://{NAME}:{port}/nodes"
        (cookie,) = (cookie for cookie in page.context.cookies() if "rankzero" in cookie["name"])
        assert cookie["name"].startswith("__Host-") and cookie["secure"] and cookie["httpOnly"]
        assert cookie["sameSite"] == "Lax" and cookie["domain"] == NAME
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("status")).to_contain_text("You are signed out")
        browser.close()
