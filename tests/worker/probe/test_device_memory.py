"""What fills a device when an allocation fails: torch's own snapshot, replayed; no GPU is needed, and none is there."""

from __future__ import annotations

import json
import pickle
import stat
import sys
from pathlib import Path

import pytest

from tests.worker.probe.watched import Watched
from worker.monitor.memory_watch import read_device_memory

pytestmark = pytest.mark.real

FAKE_CUDA = (Path(__file__).parent / "fake_cuda.py").read_text()
SCRIPT = (
    FAKE_CUDA
    + """
model = torch.nn.Linear(256, 256, bias=False)
optimizer = torch.optim.Adam(model.parameters())
cuda = FakeCuda(torch, model, optimizer, user_file=__file__)
assert not cuda.observers, "nothing initialises CUDA before the script does"
cuda.initialise()
"""
)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def run(watched: Watched, text: str, **variables: str) -> str:
    environment = watched.environment(RANK="3", WORLD_SIZE="4", LOCAL_RANK="0", **variables)
    return watched.run([sys.executable, watched.script(SCRIPT + text)], env=environment)


STEPS = """
from rankzero_probe import process_state

def fail(requested):
    try:
        cuda.run_out_of_memory(requested)
    except torch.OutOfMemoryError as error:
        print(error)

def train(steps):
    for _ in range(steps):
        model(torch.ones(1, 256)).sum().backward()
        process_state.current.is_memory_due = True
        optimizer.step()
"""
TRAINS = """
fail(1 << 30)
os.rename(*(f"{os.environ['RANKZERO_PROBE_DIR']}/{name}.oom.json" for name in (os.getpid(), "first")))
assert cuda.recording == [("state", {"context": "state", "stacks": "python", "max_entries": 1})]
train(20)
assert cuda.recording[-1][0] is None
assert process_state.current.device_memory == {
    "device_memory_bytes": 3 << 30, "device_memory_total_bytes": 16 << 30
}
cuda.reserved = 14 << 30
train(1)
assert cuda.recording[-1][0] == "state" and len(cuda.recording) == 3
torch.cuda.memory._record_memory_history("all")  # from now on the script's
cuda.reserved = 0
train(1)
assert len(cuda.recording) == 4
fail(2 << 30)
"""


def test_a_failed_allocation_leaves_a_summary_and_the_scripts_error_is_its_own(watched: Watched):
    printed = run(watched, STEPS + TRAINS).splitlines()
    assert printed[-1] == "CUDA out of memory. Tried to allocate 2.00 GiB"
    assert watched.events("error") == [] and watched.events("memory")[0]["snapshots"] is True
    (path,) = watched.records.glob("[0-9]*.oom.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    summary = json.loads(path.read_text())
    assert summary["stack"][0][0].endswith("train.py") and summary["step"] == 22
    memory, own = read_device_memory(watched.records)[3], 256 * 256 * 4
    assert memory.shares.model_dump() == {
        "parameters": own, "gradients": own, "optimizer": 2 * own, "other": (6 << 30) + (1 << 20)
    }  # fmt: skip
    assert (memory.requested_bytes, memory.free_bytes, memory.total_bytes) == (2 << 30, 1 << 30, 16 << 30)
    assert memory.allocated_bytes == memory.shares.fixed + memory.shares.other
    assert memory.largest_unused_bytes == 512 << 20 and memory.missing_bytes == 0
    first = memory.lines[0]
    assert (first.kind, first.count, first.largest_bytes) == ("other", 2, 4 << 30)
    assert first.file.endswith("train.py") and (first.line, first.function) == (41, "forward")
    assert {"parameters", "gradients", "optimizer"} <= {line.kind for line in memory.lines}
    (pickled,) = watched.records.glob("*.oom.pickle")
    assert stat.S_IMODE(pickled.stat().st_mode) == 0o600
    assert {"segments", "device_traces"} <= pickle.loads(pickled.read_bytes()).keys()  # as torch's viewer takes it
    before = json.loads((watched.records / "first.oom.json").read_text())  # gradients and moments were still to come
    assert before["shares"]["gradients"] == before["shares"]["optimizer"] == 0
    assert before["missing_bytes"] == 3 * own


REFUSES = """
def begin(**changes):
    vars(cuda).update(changes)
    cuda.initialise()

begin(snapshot=None)
fail(2 << 30)
process_state.current.off.clear()
begin(backend="cudaMallocAsync")
del torch._C._cuda_attach_out_of_memory_observer
begin(backend="native")
train(1)
"""


def test_a_snapshot_that_fails_or_that_torch_lacks_never_reaches_the_script(watched: Watched):
    assert run(watched, STEPS + REFUSES, PROBE_MEMORY_HISTORY="0") == "CUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert [event["hook"] for event in watched.events("error")] == ["memory snapshot"]
    reasons = [event["why"] for event in watched.events("memory")]
    assert reasons[:3] == [None, None, "torch takes no snapshot of the allocator cudaMallocAsync"]
    assert "does not report out-of-memory errors" in reasons[3]
    assert not list(watched.records.glob("*.oom.*"))
