"""A script's own arguments say how many steps it takes."""

from __future__ import annotations

import pytest

from domain.launch.plan import batch_size, total_epochs, total_steps


@pytest.mark.parametrize(
    ("args", "steps"),
    [
        (["--steps", "400"], 400),
        (["--steps=400"], 400),
        (["--max-steps", "60", "--lr", "0.1"], 60),
        (["--max_iters", "1e5"], 100_000),
        (["--total-steps", "7"], 7),
        (["trainer.max_steps=12"], 12),
        (["--steps", "10", "--steps", "20"], 20),
        (["--warmup-steps", "10", "--save_steps=5"], None),
        (["--steps"], None),
        (["--steps", "many"], None),
        (["--max-steps", "-1"], None),
        (["--steps", "1e400"], None),
        (["steps", "400"], None),
        ([], None),
    ],
)
def test_the_number_of_steps(args: list[str], steps: int | None) -> None:
    assert total_steps(args) == steps


@pytest.mark.parametrize(
    ("args", "epochs"),
    [
        (["--epochs", "8"], 8),
        (["--num_train_epochs=3.0"], 3),
        (["trainer.max_epochs=12"], 12),
        (["--warmup-epochs", "2", "--epochs", "{epochs}"], None),
        (["--epochs", "0.5"], None),
    ],
)
def test_the_number_of_epochs(args: list[str], epochs: int | None) -> None:
    assert total_epochs(args) == epochs


def test_the_batch_size() -> None:
    assert batch_size(["--batch-size", "32"]) == 32
    assert batch_size(["--eval-batch-size", "32"]) is None
