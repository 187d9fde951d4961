"""Killing the worker or the server never harms a training and loses nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.end_to_end.kills import assert_training_outlives_kills
from tests.end_to_end.product import Product, wait_for


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.long)])
def test_kill_9_of_worker_and_server_leaves_the_training_alone(product: Product, kills: int, tmp_path: Path):
    assert_training_outlives_kills(product, kills, tmp_path)


@pytest.mark.real
def test_the_time_of_a_file_tells_when_the_server_last_answered(product: Product):
    contact = product.data / "node" / "contact"
    since = time.time()
    wait_for(lambda: contact.exists() and contact.stat().st_mtime >= since, "an answer")
