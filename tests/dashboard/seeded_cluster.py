"""A store with hundreds of nodes in every state, and runs on some of them; run it to look at the Nodes page:
python tests/dashboard/seeded_cluster.py DATA [NODES], then `rankzero dashboard --data DATA`."""

from __future__ import annotations

import random
import secrets
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import insert

from db.engine import Store
from db.models import Attempt, Node, Run, Task
from db.token_hashes import hash_token
from domain.messages import NodeLoad, State
from domain.protocol import PROTOCOL
from domain.spec import RunSpec
from domain.views import CheckView, PreflightCell

GIB = 2**30
GPUS = 8
ALIVE_FOR_S = 3600.0
"""Nobody sends heartbeats for these nodes, and they are to stay alive on however busy a machine."""
RUNS = (
    ("llama 8B pretraining", 16), ("resnet50 sweep 3", 2), ("small GPT", 1), ("wav2vec fine-tune", 4),
    ("diffusion XL", 8), ("eval of checkpoint 40k", 1), ("reward model", 2),
)  # fmt: skip
INTERPRETER = {
    "path": "/opt/env/bin/python", "python": "3.11.9", "torch": "2.13.0+cu126", "cuda": "12.6", "nccl": "2.27.5"
}  # fmt: skip


@dataclass
class Machines:
    """Nodes as they would have described themselves; what was not told is drawn at random, the same every time."""

    now: float
    luck: random.Random = field(default_factory=lambda: random.Random(7))
    rows: list[dict[str, object]] = field(default_factory=list)
    tasks: list[dict[str, object]] = field(default_factory=list)
    fences: int = 0

    def gpu(self, number: int, **more: object) -> dict[str, object]:
        """A machine with GPUs."""
        ids = [f"GPU-{number:04}-{device}" for device in range(GPUS)]
        devices = [{"id": id_, "kind": "cuda", "name": "NVIDIA H200", "memory_bytes": 141 * GIB} for id_ in ids]
        return self._node(f"gpu-{number:03}", devices, number, **more)

    def cpu(self, number: int, slots: int, **more: object) -> dict[str, object]:
        """A machine without any."""
        devices = [{"id": f"cpu:{at}", "kind": "cpu", "name": "AMD EPYC", "memory_bytes": None} for at in range(slots)]
        return self._node(f"cpu-{number}", devices, number, **more)

    def busy(self, row: dict[str, object], devices: list[str], foreign: bool = False) -> None:
        """Those devices compute."""
        for gpu in row["load"]["gpus"]:
            if gpu["id"] in devices:
                gpu["utilisation_percent"] = self.luck.choice((99, 97, 95, 90, 82, 40))
                gpu["memory_used_bytes"] = int(self.luck.uniform(20, 130) * GIB)
                gpu["foreign"] = foreign
        if foreign:
            row["foreign_devices"] = [*(row["foreign_devices"] or []), *devices]

    def occupy(self, rows: list[dict[str, object]], count: int = GPUS) -> int:
        """Give the first free devices of each to one more attempt; returns its fence."""
        self.fences += 1
        for rank, row in enumerate(rows):
            taken = {d for task in self.tasks if task["node_id"] == row["id"] for d in task["devices"]}
            devices = [d["id"] for d in row["devices"] if d["id"] not in taken][:count]
            self.busy(row, devices)
            kind = row["devices"][0]["kind"]
            self.tasks.append(
                {"fence": self.fences, "node_rank": rank, "node_id": row["id"], "device_kind": kind,
                 "devices": devices, "state": State.RUNNING}
            )  # fmt: skip
        return self.fences

    def _node(self, name: str, devices: list[dict[str, object]], number: int, **more: object) -> dict[str, object]:
        load = NodeLoad(
            interface="eth0", clock_offset_s=self.luck.gauss(0, 0.01), clock_error_s=0.002,
            cpu_percent=self.luck.uniform(2, 60), memory_used_bytes=51 * GIB, memory_total_bytes=2048 * GIB,
            disk_free_bytes=int(self.luck.uniform(300, 1500) * GIB), disk_total_bytes=1800 * GIB,
            gpus=[
                {"id": d["id"], "utilisation_percent": 0, "memory_used_bytes": GIB // 2, "temperature_c": 34,
                 "memory_total_bytes": 141 * GIB, "power_w": 78.0, "foreign": False}
                for d in devices if d["kind"] == "cuda"
            ],
        )  # fmt: skip
        info = {
            "cores": 96, "platform": "Linux-6.8", "processor": "Intel Xeon Platinum 8468", "memory_bytes": 2048 * GIB,
            "interpreter": INTERPRETER, "driver_version": "570.86.15", "cuda_version": "12.8",
        }  # fmt: skip
        row = {
            "id": secrets.token_hex(5), "name": name, "instance_id": "1", "token_hash": hash_token(name),
            "hostname": name, "address": f"10.0.{number // 200}.{number % 200 + 1}", "devices": devices,
            "labels": {"rack": f"b{number // 25}", "zone": "north" if number % 50 < 25 else "south"},
            "info": info, "load": dict(load), "foreign_devices": None, "first_seen": self.now - 9e5,
            "last_seen": self.now + ALIVE_FOR_S, "drain_requested_at": None, "protocol": PROTOCOL,
        } | more  # fmt: skip
        self.rows.append(row)
        return row


def seed_cluster(store: Store, now: float, nodes: int = 212) -> Machines:
    """Runs on a few dozen nodes, foreign processes on two, one draining, one silent, two lost, one nearly full."""
    made = Machines(now)
    gpus = [made.gpu(number) for number in range(nodes)]
    at, runs = 3, []
    for name, wide in RUNS:
        members = gpus[at : at + wide]
        if members:
            made.occupy(members, GPUS if wide > 1 else 3)
            runs.append((name, len(members), GPUS if wide > 1 else 3))
        at += wide
    if nodes > 60:
        for row in gpus[44:46]:
            made.busy(row, [d["id"] for d in row["devices"]], foreign=True)
        gpus[50]["drain_requested_at"] = now
        gpus[12]["last_seen"] = now - 14
        gpus[53]["last_seen"], gpus[54]["last_seen"] = now - 700, now - 90_000
        gpus[20]["load"]["notice"] = "The disk of /data is nearly full: 3.1 GiB are free."
    write(store, made, runs)
    return made


def write(store: Store, made: Machines, runs: list[tuple[str, int, int]]) -> None:
    """All of it, one run a fence."""
    rows = []
    for fence, (name, nodes, gpus) in enumerate(runs, start=1):
        spec = RunSpec(target="language_model", name=name, nodes=nodes, gpus_per_node=gpus)
        rows.append(
            {"id": f"run{fence:07}", "name": name, "project": "default", "spec": spec.model_dump(mode="json"),
             "created_at": made.now - 9000 + fence}
        )  # fmt: skip
    with store.write() as session:
        session.execute(insert(Node), made.rows)
        if rows:
            session.execute(insert(Run), rows)
            session.execute(
                insert(Attempt),
                [
                    {"fence": fence, "run_id": row["id"], "number": 1, "created_at": made.now - 9000,
                     "state": State.RUNNING, "started_at": made.now - 8900, "placed_at": made.now - 8990}
                    for fence, row in enumerate(rows, start=1)
                ],
            )  # fmt: skip
            session.execute(insert(Task), made.tasks)


def a_preflight() -> list[CheckView]:
    """Four nodes, of which two have something red."""
    names = [f"gpu-{number:03}" for number in range(4)]
    seen = {
        "alive": "answers", "interpreter": "3.11.9 (/opt/env/bin/python)", "torch": "2.13.0+cu126", "CUDA": "12.6",
        "NCCL": "2.27.5", "interface": "eth0, 10.0.0.4", "port": "43817 is free", "reach": "3 of 3",
        "devices": "8 free of other programs", "disk": "812 GiB free", "clock": "right",
    }  # fmt: skip
    red = {
        ("clock", names[2]): (
            "5.0 s ahead of the server",
            "Synchronise its clock with a time server: `timedatectl set-ntp true`, or chrony."
        ),
        ("torch", names[1]): (
            "2.11.0+cu126, others have 2.13.0+cu126",
            "Install the same torch everywhere, or choose one interpreter for all nodes with --python.",
        ),
    }  # fmt: skip
    cells = []
    for row, value in seen.items():
        for name in names:
            cell = ("failed", *red[row, name]) if (row, name) in red else ("ok", value, "")
            cells.append(PreflightCell(row, name, None, *cell))
    speeds = [
        [None, 11.8e9, 11.6e9, 2.4e9],
        [None, None, 11.7e9, 11.9e9],
        [None, None, None, 11.5e9],
        [None] * 4,
    ]
    now = time.time()
    return [CheckView(1, now - 100, now - 90, None, names, cells, speeds)]


if __name__ == "__main__":
    data = Path(sys.argv[1])
    data.mkdir(parents=True, exist_ok=True)
    opened = Store.open(data / "rankzero.db", data / "backups")
    seed_cluster(opened, time.time(), int(sys.argv[2]) if len(sys.argv) > 2 else 212)
    opened.close()
