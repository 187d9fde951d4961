"""The memory of an attempt as its samples have it: the last one in words, and when the first epoch ends."""

from __future__ import annotations

import json
from pathlib import Path

from worker.monitor.memory_watch import MemoryWatch, first_epoch_end, last_memory
from worker.monitor.silent_mistakes import RankRecord

MIB, GIB = 2**20, 2**30


def write(folder: Path, samples: int, leak: int = 0) -> None:
    with (folder / "hardware.jsonl").open("w") as file:
        for at in range(1, samples * 5, 5):
            values = {
                "rank0/own_memory_bytes": 2 * GIB, "rank1/own_memory_bytes": 3 * GIB,
                "rank1/workers_memory_bytes": 20 * GIB, "rank1/device_memory_bytes": GIB + leak * at,
                "rank1/device_memory_total_bytes": 16 * GIB, "memory_available_bytes": GIB / 8,
                "shared_memory_used_bytes": 4 * GIB, "shared_memory_free_bytes": GIB,
            }  # fmt: skip
            file.write(json.dumps({"t": 1000.0 + at, "step": at, "values": values}) + "\n")


def test_before_a_kill_the_largest_users_are_named_first(tmp_path: Path):
    write(tmp_path, samples=3)
    assert last_memory(tmp_path) == (
        "rank 1's data-loader workers 20.0 GiB, /dev/shm 4.0 GiB, rank 1 3.0 GiB, rank 0 2.0 GiB; 128 MiB free"
    )
    assert last_memory(tmp_path / "nothing") == ""


def test_a_leak_on_a_device_is_judged_by_what_the_device_has(tmp_path: Path):
    write(tmp_path, samples=80, leak=12 * MIB)
    watch = MemoryWatch(tmp_path)
    watch.look()
    (finding,) = watch.findings({})
    assert finding.evidence.startswith("+12 MiB a step on rank 1's GPU, ")
    assert "its GPU's memory is full in about 14 min" in finding.evidence
    assert finding.evidence in last_memory(tmp_path)


def record(*epochs: dict) -> RankRecord:
    return RankRecord(0, 2, events=[{"kind": "epoch"} | epoch for epoch in epochs])


def test_the_first_epoch_ends_with_the_ranks_share_of_the_data_set():
    epoch = {"step": 10, "dataset_length": 1001, "batch_size": 10, "sampler": {"replicas": 2}}
    assert first_epoch_end({0: record(epoch)}) == 10 + 51
    assert first_epoch_end({0: record(epoch, epoch)}) is None
    assert first_epoch_end({0: record({"step": 0, "dataset_length": None})}) is None
    assert first_epoch_end({}) is None
