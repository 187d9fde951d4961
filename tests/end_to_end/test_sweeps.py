"""Sweeps on the running product: the dashboard is killed in between, and every trial runs once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.kills import kill_and_wait_for_another
from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).parent / "scripts" / "parabola.py"
RUNGS = Path(__file__).parent / "scripts" / "rungs.py"


def start(product: Product, rates: list[float], ranks: int = 1, **more: Any) -> str:
    single = {"strategy": "single"} if ranks == 1 else {}
    spec = {"target": str(SCRIPT), "gpus_per_node": ranks, "probe": False} | single
    return requested(product, {"spec": spec, "parameters": {"lr": {"values": rates}}} | more)


def requested(product: Product, request: dict[str, Any]) -> str:
    request = {"metric": "val/loss"} | request
    answer = product.request("POST", "/api/sweeps", json=request)
    assert answer.status_code == 201, answer.text
    return f"/api/sweeps/{answer.json()['id']}"


def ended(product: Product, path: str) -> dict[str, Any]:
    return dict(wait_for(lambda: (shown := product.get(path))["state"] != "running" and shown, "the end", 900))


@pytest.mark.long
@pytest.mark.parametrize("trials", [3, 12])
def test_a_sweep_survives_the_kill_of_the_dashboard(product: Product, trials: int) -> None:
    rates = [round(0.05 * (number + 1), 2) for number in range(trials)]
    path = start(product, rates)
    wait_for(lambda: product.get(path)["trials"], "its first trial")
    kill_and_wait_for_another(product, "dashboard")
    sweep = ended(product, path)
    assert sweep["state"] == "succeeded", sweep
    assert [trial["params"]["lr"] for trial in sweep["trials"]] == rates
    assert {trial["state"] for trial in sweep["trials"]} == {"succeeded"}
    assert sweep["best"]["params"]["lr"] == min(rates, key=lambda rate: abs(rate - 0.5))
    assert len({trial["run"] for trial in sweep["trials"]}) == trials
    for trial in sweep["trials"]:
        steps = 6 * 2
        assert trial["value"] == pytest.approx((1 - 2 * trial["params"]["lr"]) ** steps, abs=1e-6)


@pytest.mark.long
def test_trials_of_two_ranks_share_the_queue(product: Product) -> None:
    sweep = ended(product, start(product, [0.1, 0.6, 0.4, 0.2], ranks=2))
    assert (sweep["state"], len(sweep["trials"])) == ("succeeded", 4)
    assert sweep["best"]["params"]["lr"] in (0.4, 0.6)
    runs = [product.run(trial["run"]) for trial in sweep["trials"]]
    assert {run["world_size"] for run in runs} == {2}
    assert {product.get(f"/api/runs/{run['id']}/metrics")["ranks"][-1][1] for run in runs} == {2.0}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_promoted_trial_goes_on_from_its_checkpoint(product: Product, tmp_path: Path) -> None:
    """Nine trials, two at a time, that wait at each rung for their judgement; the dashboard is killed in between.

    Of the first three trials to reach the first rung, two at most pass; of all nine, these three do."""
    floors = [0.2, 0.1, 0.3, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    args = ["--gates", str(tmp_path)]
    spec = {"target": str(RUNGS), "gpus_per_node": 1, "strategy": "single", "probe": False, "args": args}
    parameters = {"floor": {"values": floors}}
    halving = {"early_stop": "asha", "first_rung": 10}
    path = requested(product, {"spec": spec, "parameters": parameters} | halving)

    def opened(count: int, state: str) -> bool:
        """Let the trials go on that passed a rung; whether so many trials have this state."""
        trials = product.get(path)["trials"]
        for trial in trials:
            for step in (10, 30)[: trial["rung"]]:
                (tmp_path / f"{trial['params']['floor']}-{step}").touch()
        return [trial["state"] for trial in trials].count(state) >= count

    wait_for(lambda: opened(1, "pruned"), "a pruned trial", 600)
    kill_and_wait_for_another(product, "dashboard")
    wait_for(lambda: opened(0, "") and product.get(path)["state"] != "running", "the end", 900)
    sweep = product.get(path)
    assert sweep["state"] == "succeeded", sweep
    assert sweep["best"]["params"]["floor"] == 0.1
    assert {trial["state"] for trial in sweep["trials"]} == {"succeeded", "pruned"}
    pruned = [trial for trial in sweep["trials"] if trial["state"] == "pruned"]
    assert all(trial["message"].startswith("pruned at rung") for trial in pruned)
    promoted = [trial["run"] for trial in sweep["trials"] if product.run(trial["run"])["attempt"] > 1]
    assert promoted, sweep
    for run_id in promoted:
        (_, second) = product.get(f"/api/runs/{run_id}/attempts")[:2]
        assert second["number"] == 2
        first_step = product.get(f"/api/runs/{run_id}/metrics?attempt=2")["val/loss"][0][0]
        assert first_step == 11
        history = [line["text"] for line in product.get(f"/api/runs/{run_id}/history")]
        assert any(line.startswith("promoted at rung 1 of its sweep; from step 10 of ") for line in history), history
