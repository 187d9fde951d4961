"""A run that trained here, exported and imported into another installation, is the same run there."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.product import Product

pytestmark = pytest.mark.real


def command(product: Product, *arguments: str) -> None:
    argv = [sys.executable, "-P", "-m", "cli.main", *arguments, "--data", str(product.data)]
    subprocess.run(argv, env=product.env, check=True, timeout=300)


def contents(product: Product, run_id: str) -> dict[str, object]:
    """Its points, the bytes of its logs and checkpoints, and what its record says."""
    checkpoints = product.get(f"/api/runs/{run_id}/checkpoints")
    files = [product.request("GET", f"/api/checkpoints/{one['id']}/file").content for one in checkpoints]
    assert [hashlib.sha256(content).hexdigest() for content in files] == [one["sha256"] for one in checkpoints]
    logs = [
        product.request("GET", f"/api/runs/{run_id}/logs?rank={rank}&stream={stream}").content
        for rank in (0, 1)
        for stream in ("out", "err")
    ]
    history = product.get(f"/api/runs/{run_id}/history")  # signed by nobody of the other installation
    return {
        "points": product.get(f"/api/runs/{run_id}/metrics?source=all"),
        "checkpoints": [one | {"id": None} for one in checkpoints],
        "logs": logs,
        "run": product.run(run_id) | {"imported_from": None},
        "history": [(line["at"], line["attempt"], line["text"]) for line in history if "(archive)" not in line["text"]],
    }


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_that_trained_here_is_the_same_after_its_export_and_import(tmp_path: Path) -> None:
    here, there = Product(tmp_path / "here"), Product(tmp_path / "there", has_worker=False)
    archive = tmp_path / "run.zip"
    try:
        here.start()
        run_id = here.launch("image_classifier", gpus_per_node=2, max_steps=30, batch_size=32)
        assert here.wait_state(run_id)["state"] == "succeeded"
        before = contents(here, run_id)
        command(here, "export", run_id, "-o", str(archive))
        here.stop()
        there.start()
        command(there, "import", str(archive))
        after = contents(there, run_id)
        assert before["checkpoints"] and before["points"] and any(before["logs"])
        assert after == before
        there.stop()
    finally:
        here.clean_up()
        there.clean_up()
