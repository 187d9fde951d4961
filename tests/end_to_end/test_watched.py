"""A training that hangs or spoils itself in silence is found out, with the run's own evidence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.real

MISTAKEN = Path(__file__).parent / "scripts" / "mistaken.py"
LINE = {number: text.strip() for number, text in enumerate(MISTAKEN.read_text().splitlines(), start=1)}

MISTAKES = [
    ("differing replicas", "parameters differ", r"After step 8 .* on rank 0 and to .* on rank 1\.$"),
    ("forgotten set_epoch", "set_epoch never called", r"Rank 0 began 4 epochs with its DistributedSampler at epoch 0"),
    ("no number", "loss is not a number", r"^train/loss is NaN since step 6\. The last number was .* at step 5\.$"),
    ("same samples", "same samples on several ranks", r"Ranks 0 and 1 began an epoch with the same 64 samples"),
    ("unused parameters", "unused parameters", r"^2 parameters got no gradient .*forgotten\.bias, forgotten\.weight"),
    ("lonely batches", "batch of 1 with BatchNorm", r"^Rank \d trains 1 BatchNorm layers on batches of one sample"),
    ("nothing learned", "loss has not moved", r"^train/loss is 0\.5 at each of the 32 points"),
]  # fmt: skip


@pytest.mark.long  # tests/worker/probe finds them in the records of real ranks, a hang's finding takes the same way
@pytest.mark.parametrize(("mistake", "kind", "evidence"), MISTAKES)
def test_a_silent_mistake_is_said_aloud(product: Product, mistake: str, kind: str, evidence: str):
    run_id = product.launch(MISTAKEN, gpus_per_node=2, args=[mistake])
    assert product.wait_state(run_id)["state"] == "succeeded"
    (findings,) = product.get(f"/api/runs/{run_id}/findings")
    assert findings["kind"] == kind
    assert re.search(evidence, findings["evidence"]), findings
    assert findings["meaning"] and findings["fix"]
    assert product.run(run_id)["finding"].startswith(kind)


@pytest.mark.long
def test_a_training_without_mistakes_is_not_accused(product: Product):
    run_id = product.launch(MISTAKEN, gpus_per_node=2, args=["nothing"])
    assert product.wait_state(run_id)["state"] == "succeeded"
    assert product.get(f"/api/runs/{run_id}/findings") == []
    seen = product.get(f"/api/runs/{run_id}/metrics?source=probe")
    assert {"probe/rank0/step_time_s", "probe/rank1/step_time_s", "probe/samples_per_s"} <= seen.keys()


@pytest.mark.long  # without the variables nothing of the probe is loaded: tests/worker/probe, tests/domain/launch
def test_without_the_probe_nothing_is_seen(product: Product):
    run_id = product.launch(MISTAKEN, gpus_per_node=2, args=["forgotten set_epoch"], probe=False)
    assert product.wait_state(run_id)["state"] == "succeeded"
    assert product.get(f"/api/runs/{run_id}/findings") == []
    assert product.get(f"/api/runs/{run_id}/metrics?source=probe") == {}


def test_a_hang_names_the_rank_that_is_behind_and_the_run_goes_on_by_itself(product: Product):
    run_id = product.launch(
        MISTAKEN,
        gpus_per_node=2,
        args=["hang before a collective"],
        hang_after_s=25,  # longer than a step takes on a busy machine
        on_hang="resume",
        stop_grace_s=1,
    )
    ended = product.wait_state(run_id, "succeeded")
    assert ended["attempt"] == 2
    first = product.get(f"/api/runs/{run_id}/attempts")[0]
    assert (first["state"], first["reason"]) == ("failed", "hung")
    behind = re.search(r"Rank 1 is behind: at mistaken\.py line (\d+) in main, after step 12", first["message"])
    assert behind and LINE[int(behind[1])].startswith("threading.Event().wait()"), first["message"]
    waiting = re.search(r"Waiting: rank 0 at mistaken\.py line (\d+) in main", first["message"])
    assert waiting and LINE[int(waiting[1])] == "loss.backward()", first["message"]


def stack_of(product: Product, run_id: str, rank: int) -> list[dict]:
    """Where a rank stands, asked for now."""
    assert product.request("POST", f"/api/runs/{run_id}/stacks").status_code == 202
    answers = wait_for(
        lambda: (findings := product.get(f"/api/runs/{run_id}/stacks"))["complete"] and findings, "stacks"
    )
    return answers["nodes"][0]["ranks"][str(rank)]


@pytest.mark.long
def test_a_hang_is_told_while_the_run_lasts(product: Product):
    run_id = product.launch(MISTAKEN, gpus_per_node=2, args=["hang in the loader"], hang_after_s=25, stop_grace_s=1)
    findings = wait_for(lambda: product.get(f"/api/runs/{run_id}/findings"), "a finding")
    assert findings[0]["kind"] == "hung"
    assert findings[0]["meaning"] and findings[0]["fix"]
    behind = re.search(r"Rank 1 is behind: at mistaken\.py line (\d+) in __getitem__", findings[0]["evidence"])
    assert behind and LINE[int(behind[1])].startswith("threading.Event().wait()"), findings
    assert product.run(run_id)["state"] == "running"
    functions = [frame["function"] for frame in stack_of(product, run_id, rank=1)]
    assert "__getitem__" in functions and functions.index("__getitem__") < functions.index("main")
    product.request("POST", f"/api/runs/{run_id}/stop")
    assert product.wait_state(run_id)["state"] == "stopped"
