"""A dashboard with a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard.running import running
from tests.dashboard.storage.bucket_stage import PART_BYTES, Spool, Stage
from tests.s3_server import Bucket


@pytest.fixture
def stage(tmp_path: Path, bucket: Bucket) -> Iterator[Stage]:
    with running(tmp_path / "data", checkpoints_url=bucket.url) as dashboard:
        dashboard.service.storages.bucket.least_part_bytes = PART_BYTES
        node = dashboard.node()
        run_id = dashboard.launch()
        yield Stage(dashboard, bucket, Spool(tmp_path / "attempt", node), run_id)
