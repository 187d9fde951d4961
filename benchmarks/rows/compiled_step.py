"""The first step of a compiled model in a run's second attempt, against that of its first."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Figure, Spread, ratios
from benchmarks.rows.start import started
from tests.end_to_end.product import Product

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
import torch._dynamo, torch._inductor.compile_fx  # what is measured is compiling, not importing the compiler
from torch._dynamo.utils import counters
dist.init_process_group("gloo")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
    def forward(self, inputs):  # a frame of the script: torch compiles none of its own
        return self.layers(inputs).square()
model = Model()
model.compile()
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
began = time.time()
model(torch.ones(4, 64)).sum().backward()
optimizer.step()
if dist.get_rank() == 0:
    with open(f"{sys.argv[1]}.{os.environ['RANKZERO_ATTEMPT']}", "w") as file:
        print(time.time() - began, counters["inductor"]["fxgraph_cache_hit"], file=file)
dist.barrier()
sys.exit(int(os.environ["RANKZERO_ATTEMPT"] == "1"))
"""
MOST = 0.3


def measure(quick: bool) -> Iterator[Figure]:
    """Seconds of the first step; every round is a program of its own, so that it has nothing compiled yet."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        product = started(Path(folder) / "data", running)
        seconds = [attempts(product, Path(folder), number) for number in range(1 if quick else 2)]
    first, second = ([*values] for values in zip(*seconds, strict=True))
    yield Figure(
        "first step of a compiled model, attempt 2", f"{Spread.of(second)} s", "attempt 1", f"{Spread.of(first)} s",
        ratios(second, first), MOST, "less",
    )  # fmt: skip


def attempts(product: Product, root: Path, number: int) -> tuple[float, float]:
    """Seconds of the first step in both attempts of a new run."""
    script, taken = root / f"train{number}.py", root / f"taken{number}"
    script.write_text(SCRIPT)
    run_id = product.launch(script, gpus_per_node=2, args=[str(taken)])
    assert product.wait_state(run_id, timeout_s=600)["state"] == "failed"
    assert product.request("POST", f"/api/runs/{run_id}/resume").is_success
    assert product.wait_state(run_id, "succeeded", timeout_s=600)["attempt"] == 2
    first, second = (Path(f"{taken}.{attempt}").read_text().split() for attempt in (1, 2))
    assert int(first[1]) == 0 < int(second[1]), "only attempt 2 finds what attempt 1 compiled"
    return float(first[0]), float(second[0])
