"""`rankzero mirror --follow` into W&B: each row once, in order, through kills of it and absences of W&B."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.mirrors.training import LIMIT_S, STEPS, Training, following, points, training
from tests.cli.mirrors.wandb_server import WandbServer, serving
from tests.end_to_end.product import wait_for

__all__ = ["training"]
pytest.importorskip("wandb")
TO = "wandb://team/paper"


@pytest.fixture(scope="module")
def on_port() -> bool:
    return True


@pytest.fixture
def wandb() -> Iterator[WandbServer]:
    with serving() as running:
        yield running


@pytest.fixture
def env(wandb: WandbServer, tmp_path: Path) -> dict[str, str]:
    return {
        "WANDB_BASE_URL": wandb.url,
        "WANDB_API_KEY": "a" * 40,
        "WANDB_DIR": str(tmp_path),
        "HOME": str(tmp_path),
        "WANDB__SERVICE_WAIT": "300",  # seconds for its own process to start; else 30
    }


def copied(wandb: WandbServer, run: str) -> int:
    return len(wandb.curves(run).get("train/loss", ())) if run in wandb.runs else 0


def wait_for_parts(wandb: WandbServer, training: Training, count: int, log: Path) -> None:
    wait_for(lambda: copied(wandb, training.run_id) >= count * STEPS, f"{count} parts", LIMIT_S, log.read_text)


def assert_is_whole(wandb: WandbServer, training: Training, exit_code: int | None = 0) -> None:
    """Every point once, in order."""
    wanted = [point for part in range(training.parts) for point in points(part)]
    curves = wandb.curves(training.run_id)
    assert curves["train/loss"] == wanted and curves["val/loss"] == wanted
    assert [row["_step"] for row in wandb.rows(training.run_id)] == list(range(len(wandb.rows(training.run_id))))
    assert wandb.runs[training.run_id]["exit_code"] == exit_code and not wandb.unknown


@pytest.mark.long
def test_a_run_is_followed_until_it_ends(
    training: Training, wandb: WandbServer, env: dict[str, str], tmp_path: Path
) -> None:
    training.train()
    with following(training, TO, log := tmp_path / "log", **env) as command:
        wait_for_parts(wandb, training, 1, log)
        assert command.poll() is None, log.read_text()
        training.train()
        wait_for_parts(wandb, training, 2, log)
        assert wandb.runs[training.run_id]["exit_code"] is None, "it has not ended"
        training.train()
        training.end()
        assert command.wait(LIMIT_S) == 0, log.read_text()
    assert_is_whole(wandb, training)
    assert "6 000 points copied" in log.read_text()


@pytest.mark.long
def test_a_mirror_that_was_killed_goes_on_where_it_was(
    training: Training, wandb: WandbServer, env: dict[str, str], tmp_path: Path
) -> None:
    training.train()
    wandb.answers_after_s = 0.3
    for _ in range(2):
        before = copied(wandb, training.run_id)
        with following(training, TO, log := tmp_path / "log", **env) as command:
            wait_for(lambda: copied(wandb, training.run_id) > before, "points", LIMIT_S, log.read_text)  # noqa: B023
            command.kill()
            command.wait()
        training.train()
    wandb.answers_after_s = 0.0
    training.end()
    with following(training, TO, log, **env) as command:
        assert command.wait(LIMIT_S) == 0, log.read_text()
    assert_is_whole(wandb, training)
    assert "Tried to log" not in log.read_text(), "rows were sent again"


@pytest.mark.long
def test_points_logged_without_wandb_arrive_once(
    training: Training, wandb: WandbServer, env: dict[str, str], tmp_path: Path
) -> None:
    training.train()
    with following(training, TO, log := tmp_path / "log", **env) as command:
        wait_for_parts(wandb, training, 1, log)
        wandb.mode = "away"
        training.train()
        training.end()
        wait_for(lambda: wandb.refused, "an upload that fails", LIMIT_S, log.read_text)
        wandb.mode = "honest"
        assert command.wait(LIMIT_S) == 0, log.read_text()
    assert_is_whole(wandb, training)


@pytest.mark.long
def test_another_folder_does_not_go_on_with_rows_that_it_does_not_know(
    training: Training, wandb: WandbServer, env: dict[str, str], tmp_path: Path
) -> None:
    training.train()
    with following(training, TO, log := tmp_path / "log", **env) as command:
        wait_for_parts(wandb, training, 1, log)
        second = mirror(training, env)
        assert second.returncode == 1 and "Another command mirrors this run already" in second.stderr
        command.kill()
        command.wait()
    (other := tmp_path / "other").mkdir()
    training.end()
    elsewhere = mirror(training, env | {"WANDB_DIR": str(other)})
    assert elsewhere.returncode == 1 and "another mirror wrote" in elsewhere.stderr
    assert mirror(training, env).returncode == 0
    assert_is_whole(wandb, training)


def mirror(training: Training, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The command until it ends; it follows."""
    argv = [sys.executable, "-m", "cli.main", "mirror", training.run_id, "--to", TO, "--follow"]
    return subprocess.run(argv, env=os.environ | env, capture_output=True, text=True, timeout=LIMIT_S)
