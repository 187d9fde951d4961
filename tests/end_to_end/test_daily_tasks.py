"""Twelve daily tasks in Chromium: their clicks and keys, counted from the Runs page of a signed-in person."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.real

SCRIPT = """
import argparse
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.0003)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--resume")
parser.add_argument("--slow", action="store_true")
parser.add_argument("--fail", action="store_true")
args = parser.parse_args()
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(args.seed)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), args.lr)
for epoch in range(1, args.epochs + 1):
    for batch in range(1, 41):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        if args.slow and rank == 1:
            time.sleep(0.2)
        optimizer.step()
    if rank == 0:
        print(f"Epoch {epoch}/{args.epochs} val_loss: {0.5 + (epoch - 3) ** 2 / 10:.4f}", flush=True)
        torch.save({"model": model.module.state_dict()}, f"weights-{epoch}.pt")
    if args.fail and rank == 1:
        raise ValueError("sample 17 has no label")
dist.destroy_process_group()
"""


@dataclass
class Hand:
    """A person's hand on mouse and keyboard, which counts."""

    page: Page
    clicks: int = 0
    keys: int = 0

    def click(self, target: Locator) -> None:
        """Click, and count it."""
        target.click()
        self.clicks += 1

    def type(self, target: Locator, text: str) -> None:
        """Click into a field and type; what stands there is replaced."""
        target.fill(text)
        self.clicks += 1
        self.keys += len(text)

    def paste(self, target: Locator, text: str) -> None:
        """Click into a field and paste an address, which counts as one key."""
        target.fill(text)
        self.clicks += 1
        self.keys += 1

    def button(self, name: str) -> None:
        """Click a button by its name."""
        self.click(self.page.get_by_role("button", name=name, exact=True))

    def tab(self, name: str) -> None:
        """Click a tab by its name."""
        self.click(self.page.get_by_role("tab", name=name, exact=True))

    def field(self, name: str, text: str) -> None:
        """Type into a field by its label."""
        self.type(self.page.get_by_label(name, exact=True), text)

    def visit(self, name: str) -> None:
        """Click a page's link in the head of all pages."""
        self.click(self.page.get_by_test_id("stPageLink").get_by_role("link", name=name, exact=True))

    def open_run(self, name: str) -> None:
        """Click a run in the list."""
        self.click(self.page.get_by_role("table", name="Runs").get_by_role("link", name=name, exact=True))
        expect(self.page.locator(".run-header .pill").first).to_be_visible()


@dataclass(frozen=True)
class Scene:
    """What the tasks work on: the product and the script."""

    product: Product
    script: Path

    def runs(self, search: str = "") -> list[dict]:
        """The runs, the newest first."""
        return self.product.get(f"/api/runs?filter={search}")


def own_script_with_another_rate(hand: Hand, scene: Scene) -> None:
    hand.visit("Launch")
    hand.paste(hand.page.get_by_label("Script or folder", exact=True), str(scene.script))
    hand.field("Learning rate", "0.001")
    hand.button("Launch")
    hand.page.wait_for_url(re.compile(r"/run\?id="))
    run = scene.product.wait_state(hand.page.url[-10:])
    assert run["base_lr"] == 0.001 and run["state"] == "succeeded"


def best_run(hand: Hand, scene: Scene) -> None:
    search(hand, "printed/val/loss<9")
    hand.click(hand.page.get_by_role("button", name="best:printed/val/loss", exact=True))
    wait_for(lambda: names_in_list(hand.page)[0] == "good", "the best run to be first")


def why_it_failed(hand: Hand, scene: Scene) -> None:
    expect(row(hand.page, "bad")).to_contain_text("rank 1")
    expect(row(hand.page, "bad")).to_contain_text("ValueError: sample 17 has no label")


def which_rank_is_slow(hand: Hand, scene: Scene) -> None:
    expect(row(hand.page, "slow")).to_contain_text("Rank 1")


def three_seeds(hand: Hand, scene: Scene) -> None:
    hand.open_run("good")
    hand.click(hand.page.get_by_role("link", name="Launch again with changes"))
    hand.field("Seed", "1,2,3")
    hand.button("Launch 3 runs, one for each seed")
    wait_for(lambda: len(scene.runs("seed=1 or seed=2 or seed=3")) == 3, "three runs")


def best_checkpoint_of_a_printing_script(hand: Hand, scene: Scene) -> None:
    hand.open_run("good")
    hand.tab("Checkpoints")
    best = hand.page.get_by_role("row", name=re.compile("best"))
    expect(best).to_contain_text("weights-3.pt")
    with hand.page.context.expect_event("download"):
        hand.click(best.get_by_role("link", name="Download"))


def resume_with_a_lower_rate(hand: Hand, scene: Scene) -> None:
    hand.open_run("bad")
    hand.button("Resume")
    hand.field("Learning rate", "0.0001")
    expect(hand.page.get_by_text("A new run with these settings")).to_be_visible()
    hand.button("Launch the new run")
    wait_for(lambda: scene.runs("lr=0.0001"), "a run with the lower rate")


def alert(hand: Hand, scene: Scene) -> None:
    hand.visit("Alerts")
    hand.paste(hand.page.get_by_label("Address", exact=True), "https://example.org/hook")
    hand.button("Set alert")
    wait_for(lambda: scene.product.get("/api/alerts"), "the alert")


def share(hand: Hand, scene: Scene) -> None:
    hand.open_run("good")
    hand.button("Share")
    hand.button("Make a link")
    expect(hand.page.get_by_text(re.compile("/shared/"))).to_be_visible()


def second_machine(hand: Hand, scene: Scene) -> None:
    hand.visit("Nodes")
    hand.tab("Add a node")
    expect(hand.page.get_by_text("rankzero nodes add").first).to_be_visible()


def stop_all_mine(hand: Hand, scene: Scene) -> None:
    scene.product.wait_state(
        scene.product.launch(scene.script, gpus_per_node=2, args=["--epochs=8", "--slow"]), "running"
    )
    hand.click(hand.page.get_by_role("button", name="running", exact=True))
    hand.click(hand.page.get_by_role("checkbox", name="Select all runs of this list"))
    hand.click(selection(hand.page).get_by_role("button", name="Stop", exact=True))
    hand.click(selection(hand.page).get_by_role("button", name=re.compile(r"^Stop \d+\?$")))
    wait_for(lambda: all(run["stop_requested_at"] for run in scene.runs("state:running")), "the stop")


def delete_old(hand: Hand, scene: Scene) -> None:
    search(hand, "state:failed")
    hand.click(hand.page.get_by_role("checkbox", name="Select all runs of this list"))
    hand.click(selection(hand.page).get_by_role("button", name="Delete", exact=True))
    hand.click(selection(hand.page).get_by_role("button", name=re.compile(r"^Delete \d+\?$")))
    wait_for(lambda: not scene.runs("state:failed"), "the runs to be deleted")


def search(hand: Hand, query: str) -> None:
    """Search the list of runs."""
    hand.type(hand.page.get_by_role("combobox", name="Search").first, query)
    hand.page.keyboard.press("Enter")
    hand.keys += 1


def names_in_list(page: Page) -> list[str]:
    """The runs' names in the order of the list."""
    return page.get_by_role("table", name="Runs").get_by_role("link").all_inner_texts()


def row(page: Page, name: str) -> Locator:
    """A run's row in the list."""
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def selection(page: Page) -> Locator:
    """What is done with the selected runs."""
    return page.get_by_role("group", name="Selected runs")


TASKS: list[tuple[Callable[[Hand, Scene], None], int, int]] = [
    (own_script_with_another_rate, 4, 6),
    (best_run, 2, 19),
    (why_it_failed, 0, 0),
    (which_rank_is_slow, 0, 0),
    (three_seeds, 4, 5),
    (best_checkpoint_of_a_printing_script, 3, 0),
    (resume_with_a_lower_rate, 4, 6),
    (alert, 3, 1),
    (share, 3, 0),
    (second_machine, 2, 0),
    (stop_all_mine, 4, 0),
    (delete_old, 4, 13),
]
"""With the clicks and keys that each costs."""


def test_daily_tasks_cost_a_few_clicks(product: Product, browser_page: Page, tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    scene = Scene(product, script)
    for name, args in (("good", ["--epochs=4"]), ("bad", ["--fail"])):
        product.wait_state(product.launch(script, name=name, gpus_per_node=2, args=args))
    slow = product.launch(script, name="slow", gpus_per_node=2, args=["--slow", "--epochs=8"])
    wait_for(lambda: "Rank 1" in (product.run(slow)["finding"] or ""), "the slow rank to be found")
    product.request("POST", f"/api/runs/{slow}/stop")
    product.wait_state(slow)
    cost = {}
    for task, *_ in TASKS:
        browser_page.goto(f"{product.url}/")
        expect(row(browser_page, "good")).to_be_visible()
        hand = Hand(browser_page)
        task(hand, scene)
        cost[task.__name__] = hand.clicks, hand.keys
    assert cost == {task.__name__: (clicks, keys) for task, clicks, keys in TASKS}
