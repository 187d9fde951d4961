"""What reading a logger costs: the step time of a script with W&B offline, with and without the hook.

    .venv/bin/python benchmarks/loggers.py

Prints the median ratio of step rates (with / without) for short steps that each log three values; 1.000 means
that nothing is lost. The hook is used and left out every few steps of one process, because from one process to
the next a busy machine differs by more than it costs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROBE = Path(__file__).parents[1] / "worker" / "probe"
BLOCK, BLOCKS = 10, 300
SCRIPT = f"""
import json, time, torch, wandb
torch.set_num_threads(1)
run = wandb.init(project="benchmark", mode="offline", settings=wandb.Settings(silent=True))
observed = type(run).log
assert "rankzero" in observed.__code__.co_filename
logs = (observed, observed.__wrapped__)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
inputs, blocks = torch.randn(96, 256), []
for number in range({BLOCKS}):
    log, times = logs[number % 2], []
    for _ in range({BLOCK}):
        began = time.perf_counter()
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(run, {{"loss": loss.item(), "lr": 1e-3, "step": number}})
        times.append(time.perf_counter() - began)
    blocks.append(sorted(times)[{BLOCK} // 2])
run.finish()
print(json.dumps(blocks))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ours = {"RANKZERO_PROBE_DIR": f"{folder}/probe", "PYTHONPATH": str(PROBE), "HOME": folder}
        argv = [sys.executable, "-c", SCRIPT]
        output = subprocess.run(
            argv, env=os.environ | ours, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    blocks = json.loads(output.splitlines()[-1])
    ratios = []
    for number in range(2, len(blocks) - 1, 2):  # the even ones are with the hook
        without = (blocks[number - 1] + blocks[number + 1]) / 2
        ratios.append(without / blocks[number])
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"step {statistics.median(blocks) * 1e3:.1f} ms: ratio {middle:.3f} (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
