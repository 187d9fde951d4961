"""Training processes with the probe, and what it recorded of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from domain.launch import plan
from worker.monitor.probe_reader import ProbeReader
from worker.monitor.silent_mistakes import silent_mistakes

PROBE = plan.PROBE_FOLDER
TORCHRUN = [str(Path(sys.executable).parent / "torchrun"), "--standalone", "--log-dir=torchrun-logs"]
TRAINING = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def train(shard=True, set_epoch=True, bypass=False, epochs=3, workers=0, validate=True, before_step=None):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(320, 8), torch.randn(320, 1))
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(data) if shard else None
    loader = DataLoader(data, batch_size=16, sampler=sampler, shuffle=not shard, num_workers=workers)
    validation = DataLoader(data, batch_size=32)
    for epoch in range(epochs):
        if sampler and set_epoch:
            sampler.set_epoch(epoch)
        for step, (inputs, targets) in enumerate(loader):
            loss = ((model.module if bypass else model)(inputs) - targets).square().mean()
            optimizer.zero_grad()
            loss.backward()
            if before_step:
                before_step(epoch, step)
            optimizer.step()
        if validate:
            sum(float(model.module(inputs).sum()) for inputs, _ in validation)
"""


class Watched:
    """Processes with the probe, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.records = folder, folder / "attempt" / "probe"

    def environment(self, path: str = "", **variables: str) -> dict[str, str]:
        paths = os.pathsep.join(filter(None, [str(PROBE), path]))
        ours = {"RANKZERO_PROBE_DIR": str(self.records), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        ours["TMPDIR"] = str(self.folder)  # wandb leaves folders there
        ours["WANDB_X_SERVICE_WAIT"] = "300"  # seconds that its service may take to start
        return os.environ | ours | variables

    def script(self, text: str) -> str:
        file = self.folder / "train.py"
        file.write_text(textwrap.dedent(text))
        return str(file)

    def start(self, argv: list[str], **options) -> subprocess.Popen:
        options.setdefault("env", self.environment())
        return subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, **options
        )

    def run(self, argv: list[str], **options) -> str:
        process = self.start(argv, **options)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        return out

    def ddp(self, text: str, ranks: int = 2, **options) -> str:
        script = self.script(TRAINING + textwrap.dedent(text))
        return self.run([*TORCHRUN, f"--nproc-per-node={ranks}", script], **options)

    def read(self) -> ProbeReader:
        reader = ProbeReader(self.records)
        reader.look()
        return reader

    def lines(self) -> list[dict]:
        files = sorted(self.records.glob("*.jsonl")) if self.records.is_dir() else []
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def events(self, kind: str) -> list[dict]:
        noted = [event for line in self.lines() for event in line.get("events", [])]
        return [event for event in noted if event["kind"] == kind]

    def mistakes(self) -> list[str]:
        return [finding.kind for finding in silent_mistakes(self.read().records())]
