"""A rank that slows all others down is named with its cause, while the run trains; a quiet run accuses nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from domain.performance.phases import PHASES
from tests.end_to_end.product import WAIT_S, Product, wait_for

pytestmark = pytest.mark.real

SLOW = Path(__file__).parent / "scripts" / "slow.py"
CAUSES = [
    ("barrier", 0, {"barrier"}),
    ("loader", 1, {"data"}),
    ("copy", 1, {"copy"}),
    ("forward", 1, {"forward"}),
    ("nice", 1, {"cpu"}),
    ("saving", 0, {"checkpoint"}),
]


def rankzero(product: Product, *arguments: str) -> dict:
    """The JSON document that a command prints."""
    argv = [sys.executable, "-P", "-m", "cli.main", *arguments, "--data", str(product.data), "--json"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
    result = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, env=env)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def divided_with_slow_rank(product: Product, run_id: str) -> dict | None:
    """The phases if they name a slow rank: they are judged anew, seconds after the finding was."""
    divided = rankzero(product, "phases", run_id)
    return divided if divided["slow"] else None


@pytest.mark.long
@pytest.mark.parametrize(("cause", "rank", "names"), CAUSES)
def test_a_slow_rank_is_named_with_its_cause(product: Product, cause: str, rank: int, names: set[str]):
    run_id = product.launch(SLOW, gpus_per_node=2, args=[cause, "--steps=100000"], stop_grace_s=2)
    try:
        findings = wait_for(lambda: product.get(f"/api/runs/{run_id}/findings"), "a finding", 300)
        divided = wait_for(lambda: divided_with_slow_rank(product, run_id), "the rank in the phases", 300)
    finally:
        product.request("POST", f"/api/runs/{run_id}/stop")
        product.wait_state(run_id)
    assert findings[0]["kind"] == "slow rank" and findings[0]["fix"], findings
    assert findings[0]["evidence"].startswith(f"Rank {rank} on "), findings
    (slow,) = divided["slow"]
    assert (slow["rank"], slow["cause"] in names) == (rank, True), (slow, findings)
    assert 0.15 <= slow["lost_share"] <= 1 and slow["node"]
    assert set(divided["ranks"]) == {"0", "1"}
    for means in divided["ranks"].values():
        assert set(means) == {"steps", "step_s", *PHASES}
        assert sum(means[name] for name in PHASES) == pytest.approx(means["step_s"])


def test_a_quiet_run_accuses_nobody_and_is_divided_by_rank_and_step(product: Product):
    """But for a rank that gets no CPU, which on a busy machine is so."""
    run_id = product.launch(SLOW, gpus_per_node=2, args=["nothing", "--steps=900"])
    assert product.wait_state(run_id)["state"] == "succeeded"
    findings = product.get(f"/api/runs/{run_id}/findings")
    assert [one for one in findings if "gets no CPU" not in one["evidence"]] == []
    whole = rankzero(product, "phases", run_id)
    assert {slow["cause"] for slow in whole["slow"]} <= {"cpu"} and whole["ranks"]["0"]["steps"] == 899
    late = rankzero(product, "phases", run_id, "--rank", "1", "--since", "300")
    assert set(late["ranks"]) <= {"1"}
    drawn = product.get(f"/api/runs/{run_id}/phases/spans")
    assert [totals["rank"] for totals in drawn["ranks"]] == [0, 1]
    assert len(drawn["walls"]) == len(drawn["steps"])
