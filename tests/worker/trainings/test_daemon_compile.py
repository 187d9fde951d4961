"""The second attempt of a program finds what the first one compiled."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.worker.real_node import RealNode

COMPILING = """
import json, torch
from torch._dynamo.utils import counters
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()))
model(torch.ones(4, 8)).sum().backward()
with open("counted.json", "w") as file:
    json.dump({name: counters["inductor"][name] + counters["aot_autograd"][name.replace("fxgraph", "autograd")]
               for name in ("fxgraph_cache_hit", "fxgraph_cache_miss")}, file)
"""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++: torch.compile writes C++ for CPUs")
def test_the_second_attempt_compiles_nothing_again(node: RealNode):
    script = node.script(COMPILING)
    counted = []
    for attempt in (1, 2):
        node.assign(node.assignment(script, attempt=attempt, fence=attempt))
        assert node.until_settled().state == "succeeded"
        counted.append(json.loads((node.dir(attempt) / "work" / "counted.json").read_text()))
    assert counted[0]["fxgraph_cache_miss"] > 0 == counted[0]["fxgraph_cache_hit"]
    assert counted[1]["fxgraph_cache_hit"] > 0 == counted[1]["fxgraph_cache_miss"]
