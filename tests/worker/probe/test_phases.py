"""Phases of a step, measured in unchanged scripts: every moment belongs to one, and each to the right one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.worker.probe.watched import TORCHRUN, Watched
from worker.probe.rankzero_probe import phase_clock, process_state
from worker.probe.rankzero_probe.phase_clock import (
    BACKWARD,
    CHECKPOINT,
    COMM,
    DATA,
    FORWARD,
    NOT_BEGUN,
    OPTIMIZER,
    OTHER,
    PhaseClock,
)
from worker.probe.rankzero_probe.phases import _call_after_compute

pytestmark = pytest.mark.real


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> PhaseClock:
    """A clock on which each look takes a second."""
    now = SimpleNamespace(s=0.0)

    def look() -> float:
        now.s += 1.0
        return now.s

    monkeypatch.setattr(phase_clock, "perf_counter", look)
    started = PhaseClock()
    started.end_step(1, look())
    return started


def spent(clock: PhaseClock) -> dict[int, float]:
    clock.end_step(2, phase_clock.perf_counter())
    _, seconds = clock.ended
    return {phase: s for phase, s in enumerate(seconds) if s}


def test_phases_follow_each_other_and_add_up(clock):
    clock.end(clock.begin(DATA))
    previous = clock.begin(FORWARD)
    assert clock.begin(DATA) == NOT_BEGUN  # a model that reads data is computing
    clock.end(previous)
    previous = clock.begin(BACKWARD)
    clock.end_compute()
    clock.end(previous)
    clock.begin_optimizer("sgd")
    clock.end_optimizer("sgd")
    phases = spent(clock)
    assert phases == {OTHER: 4, DATA: 1, FORWARD: 2, BACKWARD: 1, COMM: 1, OPTIMIZER: 1}
    assert sum(phases.values()) == clock.since - 1.0


def test_a_closure_computes_inside_the_optimizer(clock):
    clock.begin_optimizer("lbfgs")
    clock.end(clock.begin(FORWARD))
    clock.end(clock.begin(BACKWARD))
    clock.begin_optimizer("inner")
    clock.end_optimizer("inner")
    clock.end_optimizer("lbfgs")
    assert spent(clock) == {OTHER: 2, OPTIMIZER: 3, FORWARD: 2, BACKWARD: 1}  # a look at the inner one's end


def test_a_step_that_raised_does_not_hold_the_clock(clock):
    clock.begin_optimizer("raises")
    clock.end(clock.begin(DATA))
    clock.begin_optimizer("sgd")
    clock.end_optimizer("raises")
    assert spent(clock)[DATA] == 1
    clock.end(clock.begin(CHECKPOINT))
    assert clock.phase == OTHER


def totals(watched: Watched) -> dict[int, dict[str, float]]:
    """The last totals of each rank."""
    return {line["rank"]: line["phases"] for line in watched.lines() if "phases" in line}


ROUNDED_S = 0.02
"""What rounding may add to the sum of the phases."""
SPENDING = """
    import os, sys, time
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Dataset
    S = 0.02
    class Slow(Dataset):
        def __len__(self): return 20
        def __getitem__(self, index):
            time.sleep(S)
            return torch.ones(8)
    class Net(torch.nn.Linear):
        def forward(self, batch):
            time.sleep(S)
            return super().forward(batch)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Net(8, 1))
    if compiled: model = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    looks, called = [], 0.0
    for batch in DataLoader(Slow()):
        loss = model(batch.to("cpu", copy=True)).sum()
        loss.register_hook(lambda gradient: time.sleep(S))
        optimizer.zero_grad()
        loss.backward()
        looks.append(time.perf_counter())
        optimizer.step()  # in which a step ends, and the next one begins
        looks.append(time.perf_counter())
        of_steps = called
        torch.save(model.state_dict(), "file")
        time.sleep(S)
        come = f"come{len(looks)}"
        if dist.get_rank() == 1: open(come, "w").close()
        elif dist.get_world_size() == 2:
            while not os.path.exists(come): time.sleep(0.001)
            time.sleep(3 * S)  # also where the other is held up on its way into the barrier
        entered = time.perf_counter()
        dist.barrier()
        called += time.perf_counter() - entered
    least, most = looks[-2] - looks[1], looks[-1] - looks[0]
    # One write: the other rank writes to the same pipe.
    sys.stdout.write(f"{dist.get_rank()} {least} {most} {of_steps}\\n")
    dist.destroy_process_group()
    """


@pytest.mark.training
@pytest.mark.parametrize(
    "compiled", [pytest.param(False, id="eager"), pytest.param(True, id="compiled", marks=pytest.mark.long)]
)
def test_each_second_belongs_to_the_phase_that_took_it(watched, compiled):
    script = watched.script(f"compiled = {compiled}\n" + textwrap.dedent(SPENDING))
    out = watched.run([*TORCHRUN, "--nproc-per-node=2", script])
    measured = {int(rank): tuple(map(float, rest)) for rank, *rest in (line.split() for line in out.splitlines())}
    assert not watched.events("error")
    for rank, phases in totals(watched).items():
        assert phases["step"] == 20
        total = sum(s for name, s in phases.items() if name not in ("step", "called_comm_s", "cpu_wait_s"))
        least, most, called = measured[rank]
        assert least - ROUNDED_S <= total <= most + ROUNDED_S
        assert phases["called_comm_s"] <= called + ROUNDED_S
        for name in ("data_s", "forward_s", "backward_s", "other_s"):
            assert phases[name] >= 19 * 0.02, name
        assert phases["copy_s"] > 0 and phases["optimizer_s"] > 0 and phases["checkpoint_s"] > 0
    assert totals(watched)[1]["called_comm_s"] >= 15 * 0.02  # it waits in the barrier for the other, which comes later


@pytest.mark.training
@pytest.mark.long
def test_a_single_process_of_ddp_waits_for_no_communication(watched):
    script = watched.script("compiled = False\n" + textwrap.dedent(SPENDING).replace("S = 0.02", "S = 0"))
    _, least, most, _ = map(float, watched.run([*TORCHRUN, "--nproc-per-node=1", script]).split())
    phases = totals(watched)[0]
    assert not watched.events("error")
    assert "exposed_comm_s" not in phases and "called_comm_s" not in phases
    total = sum(s for name, s in phases.items() if name not in ("step", "cpu_wait_s"))
    assert least - ROUNDED_S <= total <= most + ROUNDED_S


WITHOUT_DDP = """
    import torch
    from torch.optim import LBFGS
    model = torch.nn.Linear(8, 1)
    optimizer = LBFGS(model.parameters(), lr=0.1, max_iter=3)
    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().sum()
        loss.backward()
        return loss
    for _ in range(30):
        optimizer.step(closure)
    torch.autograd.backward([model(torch.ones(1, 8)).sum()])
    torch.autograd.backward(model(torch.ones(1, 8)).sum())
    """


@pytest.mark.long
def test_a_script_with_neither_loader_nor_ddp_is_divided_too(watched):
    watched.run([sys.executable, watched.script(WITHOUT_DDP)], env=watched.environment(RANK="0"))
    phases = totals(watched)[0]
    assert not watched.events("error")
    assert phases["forward_s"] > 0 and phases["backward_s"] > 0 and phases["optimizer_s"] > 0
    assert "data_s" not in phases and "exposed_comm_s" not in phases


def test_the_wait_for_a_cpu_is_known_in_a_forked_process():
    """As the ranks of a warm start are: Python keeps the parent's number for their main thread."""
    code = """
        import os, threading
        from worker.probe.rankzero_probe.phases import _cpu_wait_s
        if os.fork() == 0:
            os._exit(0 if _cpu_wait_s(threading.get_ident()) is not None else 7)
        raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False).returncode == 0


@pytest.mark.parametrize("kept", [True, False])
def test_clock_hears_the_end_of_computing_once_a_pass_also_of_a_kept_graph(monkeypatch, kept):
    torch = pytest.importorskip("torch")
    heard: list[str] = []
    clock = SimpleNamespace(end_compute=lambda: heard.append("end of computing"))
    state = SimpleNamespace(off=frozenset(), clock=clock, failed=lambda *error: heard.append(f"failed: {error}"))
    monkeypatch.setattr(process_state, "current", state)
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * weight).sum()
    for number in range(1, 4 if kept else 2):
        handle = _call_after_compute(state, loss, keeps_graph=kept)
        loss.backward(retain_graph=kept)
        if handle is not None:
            handle.remove()
        assert heard == ["end of computing"] * number
    if kept:
        loss.backward()  # no hook of ours is left on it
        assert heard == ["end of computing"] * 3


def test_a_clock_that_fails_is_off_and_the_training_goes_on(watched):
    script = watched.script("""
        import torch
        import rankzero_probe.phases as totals
        def broken(*_): raise RuntimeError("no such thread")
        totals._cpu_wait_s = broken
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(30):
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
        print("done")
        """)
    assert watched.run([sys.executable, script], env=watched.environment(RANK="0")) == "done\n"
    (error,) = watched.events("error")
    assert (error["hook"], watched.lines()[-1]["step"]) == ("phases", 30)
