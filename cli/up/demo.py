"""The run that `rankzero up --demo` launches: real data, two ranks, several minutes long."""

from __future__ import annotations

from typing import Any

from cli.server.client import ServerClient

NAME = "demo"
RANKS = 2
TERMINAL = ("succeeded", "failed", "stopped")


STEPS = {"cpu": 7_000, "cuda": 100_000}
"""Enough for more than five minutes: a step takes about 90 ms on two CPU cores and 5 ms on a GPU."""
STEPS_PER_EPOCH = 5_621
"""Steps of an epoch with two ranks and eight samples each."""


def spec(slots: int, kind: str = "cpu") -> dict[str, Any]:
    """Return the spec of a byte-level GPT that trains on the Python standard library's sources."""
    return {
        "target": "language_model",
        "name": NAME,
        "gpus_per_node": min(RANKS, slots),
        "batch_size": 8,
        "lr": 0.0007,
        "lr_scaling": "linear",
        "warmup_steps": 100,
        "epochs": -(-STEPS[kind] // STEPS_PER_EPOCH),
        "max_steps": STEPS[kind],
        "seed": 1,
        "stop_grace_s": 15,
        "args": [f"--checkpoint-every={STEPS[kind] // 14}"],
    }


def most_slots(server: ServerClient) -> int:
    """Return the largest number of slots on an online node; 0 without one."""
    nodes: list[dict[str, Any]] = server.get("/api/nodes")
    return max((int(node["slots"]) for node in nodes if node["state"] == "alive"), default=0)


def launch(server: ServerClient, slots: int) -> str:
    """Return the id of the demo run that has not ended, or launch a new one."""
    for run in server.get("/api/runs", q=NAME):
        if run["name"] == NAME and run["state"] not in TERMINAL:
            return str(run["id"])
    kinds = {device["kind"] for node in server.get("/api/nodes") for device in node["devices"]}
    return str(server.post("/api/runs", spec(slots, "cuda" if "cuda" in kinds else "cpu"))["id"])
