"""A process group can be destroyed right after the last step, which by itself lets torch 2.13 wait for ever."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.worker.probe.watched import Watched

ENDINGS = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def train(group):
    model = DistributedDataParallel(torch.nn.Linear(64, 64), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 64)).square().mean().backward()
        optimizer.step()
    {before_end}
    dist.destroy_process_group(group)

torch.set_num_threads(1)
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
sys.setswitchinterval(20)  # a thread gets Python's lock only when it is freed
for _ in range(20):
    train(dist.new_group())
print("ended")
"""


@pytest.mark.real
@pytest.mark.parametrize(
    "before_end",
    [pytest.param("pass", marks=pytest.mark.long), "dist.all_reduce(torch.ones(1000), group=group)"],
)
def test_a_group_is_destroyed_right_after_its_last_collective(tmp_path: Path, before_end: str):
    watched = Watched(tmp_path)
    script = watched.script(ENDINGS.replace("{before_end}", before_end))
    environment = watched.environment(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    assert watched.run([sys.executable, script], env=environment) == "ended\n"
