"""A worker that Slurm started for one attempt imports no torch ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.agent.worker import Worker
from worker.session.options import WorkerOptions


@pytest.mark.parametrize(("only_attempt", "is_off"), [(None, False), (77, True)])
def test_worker_of_a_job_has_no_warm_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_attempt: int | None, is_off: bool
) -> None:
    monkeypatch.setenv("RANKZERO_TOKEN", "a-token-to-join")
    worker = Worker(WorkerOptions(server="http://127.0.0.1:9", data=tmp_path, slots=1, only_attempt=only_attempt))
    assert (worker._trainings.status == "off") is is_off
