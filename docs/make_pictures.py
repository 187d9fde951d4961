"""Makes the README's pictures: real pages of a real product, after a few real runs.

.venv/bin/python docs/make_pictures.py [--steps 400] [--only launch scaling …]

The cluster on the Nodes page is made up: nobody has that many machines at hand.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.dashboard.browsed import browsed, opened  # noqa: E402
from tests.dashboard.seeded_cluster import a_preflight, seed_cluster  # noqa: E402
from tests.end_to_end.browsers import launch  # noqa: E402
from tests.end_to_end.product import Product, wait_for  # noqa: E402

PICTURES = Path(__file__).parent / "pictures"
SIZE = {"width": 1280, "height": 860}
NODES = 142
SCRIPTS = ROOT / "tests" / "end_to_end" / "scripts"
CLUSTER = ("nodes", "preflight")
DRAWN = {
    "hang": ".card canvas",
    "runs": "tbody tr td.name",
    "launch": ".st-key-launch_meaning [data-testid=stCode] .token",
    "run": ".card canvas",
    "ranks": ".phases canvas, canvas",
    "scaling": "svg",
    "compare": ".card canvas",
}
"""The part of each page that is drawn last."""
LIMIT_MS = 120_000
HIDE_CHECKOUT = """([checkout, shown]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(checkout, shown);
}"""
"""Where this checkout lies is nobody's business."""
BROKEN, HANGING = SCRIPTS / "broken.py", SCRIPTS / "mistaken.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400, help="how far the run on the pictures has come")
    parser.add_argument("--only", nargs="+", choices=[*CLUSTER, *DRAWN], help="make the pictures of these alone")
    options = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    names = options.only or [*CLUSTER, *DRAWN]
    if set(names) & set(CLUSTER):
        the_cluster()
    if set(names) & set(DRAWN):
        the_product(names, options.steps)


def the_product(names: Sequence[str], steps: int) -> None:
    """The pages of these names, of runs that are launched for them."""
    with tempfile.TemporaryDirectory() as folder:
        product = Product(Path(folder) / "data")
        try:
            product.start()
            with sync_playwright() as playwright:
                browser = launch(playwright)
                if "hang" in names:
                    hung = a_hung_run(product)
                    take(browser, product, {"hang": f"/run?id={hung}"})
                    product.request("POST", f"/api/runs/{hung}/stop")
                if "compare" in names:
                    take(browser, product, {"compare": f"/compare?runs={','.join(runs_to_compare(product))}"})
                if "scaling" in names:
                    take(browser, product, {"scaling": f"/scaling?id={a_scaling_study(product)}"})
                if of_runs := [name for name in ("runs", "launch", "run", "ranks") if name in names]:
                    pages = pages_of_runs(some_runs(product, steps))
                    take(browser, product, {name: pages[name] for name in of_runs})
                browser.close()
            product.stop()
        finally:
            product.clean_up()


def pages_of_runs(run_id: str) -> dict[str, str]:
    """The addresses of the pages that show runs, and this one."""
    run = f"/run?id={run_id}"
    return {"runs": "/", "launch": f"/launch?from={run_id}", "run": run, "ranks": f"{run}&tab=ranks"}


def the_cluster() -> None:
    """Many nodes in every state, and a preflight with two red cells."""
    with tempfile.TemporaryDirectory() as folder:
        service = opened(Path(folder) / "data")
        seed_cluster(service.store, service.clock(), NODES)
        service.preflights.all = a_preflight  # type: ignore[method-assign]
        with browsed(service) as dashboard, sync_playwright() as playwright:
            browser = launch(playwright)
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport=SIZE, color_scheme=scheme, device_scale_factor=1.5)
                page.goto(f"{dashboard.url}/nodes?token={service.credentials.user}")
                page.locator(".node").nth(NODES - 1).wait_for()
                page.wait_for_timeout(4000)  # fonts and first drawing
                page.screenshot(path=PICTURES / f"nodes-{scheme}.png")
                page.get_by_role("tab", name="Preflight").click()
                page.locator(".preflight .heat").wait_for()
                page.wait_for_timeout(1000)
                page.screenshot(path=PICTURES / f"preflight-{scheme}.png")
                page.close()
            browser.close()


def some_runs(product: Product, steps: int) -> str:
    """A finished, a failed and a running run; returns the running one."""
    done = product.launch("image_classifier", name="digits baseline", project="vision", epochs=8)
    product.wait_state(done)
    product.wait_state(product.launch(BROKEN, name="wrong shape", project="vision", args=["raise"]))
    linear = {"lr": 0.0005, "lr_scaling": "linear", "warmup_steps": 100}
    run_id = product.launch("language_model", name="small GPT", project="text", **linear)
    product.wait_step(run_id, steps, timeout_s=1200)
    return run_id


def runs_to_compare(product: Product) -> list[str]:
    """The same classifier with three learning rates, the first of which is the project's baseline."""
    ids = []
    for lr in (0.001, 0.003, 0.01):
        name = f"digits lr={lr:g}"
        ids.append(product.launch("image_classifier", name=name, project="digits", lr=lr, epochs=6))
        product.wait_state(ids[-1])
    product.request("PATCH", f"/api/runs/{ids[0]}", json={"baseline": True})
    return ids


def a_scaling_study(product: Product) -> str:
    """The image classifier on one and two processes of this machine."""
    request = {"spec": {"target": "image_classifier", "name": "digits"}, "gpus": [1, 2], "steps": 300}
    study_id = product.request("POST", "/api/scaling-studies", json=request).json()["id"]
    path = f"/api/scaling-studies/{study_id}"
    wait_for(lambda: product.get(path)["state"] not in ("running", "stopping"), "the study to end", 1800)
    return study_id


def a_hung_run(product: Product) -> str:
    """One of its ranks has left before a collective; the page knows which."""
    run_id = product.launch(
        HANGING,
        name="resnet50",
        project="vision",
        args=["hang before a collective"],
        hang_after_s=5,
        stop_grace_s=1,
    )
    wait_for(lambda: product.get(f"/api/runs/{run_id}/findings"), "the hang to be found")
    return run_id


def take(browser: Browser, product: Product, addresses: dict[str, str]) -> None:
    """One picture of each page, light and dark."""
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport=SIZE, color_scheme=scheme, device_scale_factor=1.5)
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        page.goto(f"{product.url}/?token={product.token()}")
        for name, address in addresses.items():
            page.goto(product.url + address)
            page.locator(DRAWN[name]).first.wait_for(timeout=LIMIT_MS)
            expect(page.get_by_test_id("stSkeleton")).to_have_count(0, timeout=LIMIT_MS)
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(5000)  # fonts, and points that come meanwhile
            page.evaluate(HIDE_CHECKOUT, [str(ROOT), "~/rankzero"])
            page.screenshot(path=PICTURES / f"{name}-{scheme}.png")
        context.close()


if __name__ == "__main__":
    main()
