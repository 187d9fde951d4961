"""A sweep typed into the launch form in Chromium: its trials, an error at its field, and its page."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.dashboard.browsed import browsed, opened
from tests.dashboard.seeded_store import Seed
from tests.dashboard.visits import axe_faults, signed_in
from tests.end_to_end.browsers import Chromium

pytestmark = pytest.mark.long


def test_several_values_in_a_field_launch_a_sweep(browser: Chromium, tmp_path) -> None:
    with browsed(opened(tmp_path / "data")) as dashboard, signed_in(browser, dashboard) as visit:
        Seed(dashboard.service.store, dashboard.service.clock()).node("gpu-1", 2)
        page = visit.new_page()
        page.goto(f"{dashboard.url}/launch")
        rate = page.get_by_role("textbox", name="Learning rate", exact=True)
        launch = page.locator(".st-key-launch_now button")
        expect(launch).to_have_text(re.compile("Launch$"))
        rate.fill("3e-4, fast")
        expect(page.locator(".st-key-refusal_lr")).to_have_text("Learning rate must be a number, got 'fast'.")
        expect(launch).to_be_disabled()
        expect(launch).to_have_css("color", re.compile(r"rgba\(28, 32, 51, 0\.4\)"))  # dimmed, but visible
        rate.fill("1e-4..1e-2 log")
        expect(page.get_by_text("Sweep of 20 runs", exact=True)).to_be_visible()
        rate.fill("3e-4, 1e-3")
        page.get_by_role("textbox", name="Extra arguments", exact=True).fill("--model {cnn,resnet18}")
        trials = page.locator(".st-key-launch_trials")
        expect(trials.get_by_text("Sweep of 4 runs", exact=True)).to_be_visible()
        expect(trials).to_contain_text("lr=0.001 model=resnet18")
        assert axe_faults(page) == []
        page.set_viewport_size({"width": 390, "height": 844})
        rate.fill("3e-4, fast")
        expect(page.locator(".st-key-refusal_lr p")).to_be_visible()
        assert page.locator(".st-key-refusal_lr p").evaluate(
            "text => text.getBoundingClientRect().top >= text.parentElement.getBoundingClientRect().top"
        ), "its first line is cut off"
        rate.fill("3e-4, 1e-3")
        expect(launch).to_have_text(re.compile("Launch the sweep of 4 runs"))
        expect(launch).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.wait_for_function("sessionStorage.getItem('rankzero.form') !== null")
        launch.click()
        expect(page).to_have_url(re.compile(r"/sweeps\?id="))
        assert page.evaluate("sessionStorage.getItem('rankzero.form')") is None, "it was launched"
        expect(page.locator(".sweep tbody tr").first).to_contain_text("0.0003")  # queued by the dashboard
        assert visit.errors == []
