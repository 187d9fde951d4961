"""Rows on what the product shows of a training on a GPU, each against another who measured the same."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.figures import Figure, Spread
from benchmarks.gpu.machine import SCRIPTS, Machine, Wrong, nvidia_smi
from benchmarks.gpu.recipes import off_by
from benchmarks.rows import probe
from domain.performance.efficiency import PARAMETERS, TOKENS, Arithmetic
from domain.text.formats import MIB

BETWEEN_S = 0.3e-3
"""Between a moment of the script's and that of the probe lie torch's calls to hooks."""


def phases(machine: Machine) -> Iterator[Figure]:
    """Phases of a step where the host waits for each kernel, against the script's own CUDA events."""
    out = machine.folder / "phases.json"
    steps, width = (20, 128) if machine.is_small else (200, 2048)
    run = machine.train(
        SCRIPTS / "phases.py", args=[str(out), str(steps), str(width)], env={"CUDA_LAUNCH_BLOCKING": "1"}
    )
    theirs, ours = json.loads(out.read_text()), machine.product.get(f"/api/runs/{run['id']}/phases")["ranks"]["0"]
    clock = "the script's CUDA events" if machine.kind == "cuda" else "the script's clock"
    for name, seconds in theirs.items():
        beyond_s = max(0.0, abs(ours[name] - seconds) - BETWEEN_S)
        yield Figure(f"{name.removesuffix('_s')} of a step", _ms(ours[name]), clock, _ms(seconds),
                     Spread.of([1 + beyond_s / seconds]), 1.1, "less")  # fmt: skip


def out_of_memory(machine: Machine) -> Iterator[Figure]:
    """What filled the GPU by the memory picture, against the sizes that the script gave its tensors."""
    machine.need_gpu()
    out, script = machine.folder / "memory.json", SCRIPTS / "out_of_memory.py"
    run = machine.train(script, "failed", args=[str(out)])
    if run["reason"] != "out of memory":
        raise Wrong(f"the reason is {run['reason']!r}: {run['message']}")
    yield from memory_figures((run["error"] or {}).get("memory"), json.loads(out.read_text()), script.read_text())


def memory_figures(memory: dict[str, Any] | None, sizes: dict[str, int], script: str) -> Iterator[Figure]:
    """Shares of the picture against known sizes. Raises Wrong where it names another line than that which filled it."""
    if memory is None:
        raise Wrong("the failed run has no memory picture")
    line = max(memory["lines"], key=lambda line: line["bytes"])
    if "this line fills it" not in script.splitlines()[line["line"] - 1]:
        raise Wrong(f"line {line['line']} is named as the largest")
    for kind, size in sizes.items():
        ours = memory["shares"][kind]
        yield Figure(f"memory picture: {kind}", _mib(ours), "the script's tensors", _mib(size), off_by(ours, size),
                     1.02, "less")  # fmt: skip


def busy(machine: Machine) -> Iterator[Figure]:
    """Hardware series, a profile and MFU of one training that fills the GPU."""
    with _training(machine) as (run, end):
        yield from hardware(machine, run)
        recorded = profile(machine, run)
        theirs = end()
    yield profile_figure(recorded, theirs["step_s"])
    yield mfu_figure(machine, run, theirs)


@contextmanager
def _training(machine: Machine) -> Iterator[tuple[str, Any]]:
    """A run that trains until it is told to end, and how to do that and read what it counted."""
    out, until = machine.folder / "tokens.json", machine.folder / "end"
    sizes = ("64", "2", "2") if machine.is_small else ("2048", "16", "64")
    run = machine.product.launch(SCRIPTS / "tokens.py", gpus_per_node=1, args=[str(out), str(until), *sizes])

    def end() -> dict[str, float]:
        until.touch()
        machine.ended(run)
        return dict(json.loads(out.read_text()))

    try:
        machine.wait(lambda: (machine.product.run(run)["step"] or 0) >= 30, "30 steps of the training on tokens")
        yield run, end
    finally:
        until.touch()


SETTLING_S = 12.0
"""In which a steady training has samples of its own alone."""


def hardware(machine: Machine, run: str) -> Iterator[Figure]:
    """The latest samples against nvidia-smi at the same time."""
    if machine.is_small:
        return
    time.sleep(min(SETTLING_S, machine.limit_s()))
    theirs = nvidia_smi("memory.used,power.draw")
    yield from hardware_figures(machine.product.get(f"/api/runs/{run}/hardware"), theirs)


def hardware_figures(series: dict[str, list[list[float]]], of_gpus: list[dict[str, float]]) -> Iterator[Figure]:
    """Memory and power; MiB and watts of nvidia-smi for each GPU. Raises Wrong where a series is missing."""
    number = next((number for number in range(len(of_gpus)) if f"hardware/gpu{number}/memory_used_bytes" in series), 0)
    theirs = of_gpus[number]
    for name, query, unit, scale, most in (
        ("memory_used_bytes", "memory.used", "MiB", MIB, 1.05),
        ("power_w", "power.draw", "W", 1, 1.25),
    ):
        if query not in theirs:
            continue
        points = series.get(f"hardware/gpu{number}/{name}")
        if not points:
            raise Wrong(f"there is no series hardware/gpu{number}/{name}, only {sorted(series)}")
        ours = points[-1][1] / scale
        yield Figure(f"hardware series {name}", f"{ours:.0f} {unit}", "nvidia-smi", f"{theirs[query]:.0f} {unit}",
                     off_by(ours, theirs[query]), most, "less")  # fmt: skip


def profile(machine: Machine, run: str) -> dict[str, Any]:
    """The overview of ten profiled steps of rank 0. Raises Wrong where there is none."""
    response = machine.product.request("POST", f"/api/runs/{run}/profiles", json={"steps": 10, "ranks": [0]})
    if response.status_code != 202:
        raise Wrong(f"a profile was refused: {response.text[:200]}")
    path = f"/api/runs/{run}/profiles/{response.json()['id']}"
    ended = machine.wait(lambda: (one := machine.product.get(path))["state"] not in PENDING and one, "the profile")
    outcome = ended["outcomes"][0] if ended["outcomes"] else {}
    if ended["state"] != "recorded" or not outcome.get("overview"):
        raise Wrong(f"the profile is {ended['state']}: {outcome}")
    return dict(outcome["overview"])


PENDING = ("recording",)


def profile_figure(overview: dict[str, Any], step_s: float) -> Figure:
    """On a GPU the time its kernels filled in a step, else the step, against the script's own."""
    device, seconds = overview["device"], overview["seconds"] / overview["steps"]
    ours = seconds * device["busy_share"] if device else seconds
    label = "profile: kernels of a step" if device else "profile: a step"
    return Figure(label, _ms(ours), "the script's step by its own count", _ms(step_s), off_by(ours, step_s),
                  1.3 if device else 10, "less")  # fmt: skip


def mfu_figure(machine: Machine, run: str, theirs: dict[str, float]) -> Figure:
    """The arithmetic that the Run page states, against the same from the script's own count."""
    name = machine.product.get("/api/nodes")[0]["devices"][0]["name"] if machine.kind == "cuda" else ""
    tokens_per_s = statistics.median(value for _, value, _ in machine.points(run, f"probe/{TOKENS}", "probe"))
    ours = Arithmetic(machine.last(run, f"probe/{PARAMETERS}", "probe"), tokens_per_s, 1, name)
    own = Arithmetic(theirs["parameters"], theirs["tokens_per_s"], 1, name)
    return Figure("TFLOP/s of a step", _speed(ours), "the script's own count", _speed(own),
                  off_by(ours.tflop_per_s, own.tflop_per_s), 1.5 if machine.is_small else 1.15, "less")  # fmt: skip


def _speed(arithmetic: Arithmetic) -> str:
    """With the MFU of a GPU whose peak is known."""
    speed, peak = arithmetic.tflop_per_s, arithmetic.peak_tflop_per_s
    return f"{speed:.3g} TFLOP/s" + (f", MFU {speed / peak:.1%}" if peak else "")


FOREIGN_BYTES, NAMED_S = 1 << 30, 10.0
"""What the other process holds, and the longest time until it is named."""


def foreign(machine: Machine) -> Iterator[Figure]:
    """Somebody else's process on the GPU: seconds until it is named, and until the GPU is free again."""
    machine.need_gpu()
    before = holders(machine.product.get("/api/nodes")[0])
    with machine.beside([SCRIPTS / "holder.py", FOREIGN_BYTES]) as process:
        machine.wait(lambda: process.stdout.readline() == "holding\n", "a process to hold memory of the GPU", 60)
        began = time.monotonic()
        machine.wait(lambda: holders(machine.product.get("/api/nodes")[0]) - before, "its name on the node", 30)
        named_s = time.monotonic() - began
    began = time.monotonic()
    machine.wait(lambda: holders(machine.product.get("/api/nodes")[0]) <= before, "the GPU to be free again", 30)
    for event, seconds in (("named", named_s), ("gone again", time.monotonic() - began)):
        yield Figure(f"others' process on the GPU: {event}", f"{seconds:.1f} s", "a limit", f"{NAMED_S:.0f} s",
                     Spread.of([seconds / NAMED_S]), 1, "less")  # fmt: skip


def holders(node: dict[str, Any]) -> set[int | None]:
    """The numbers of others' processes on the node's GPUs; None for one that a container hides."""
    gpus = (node["load"] or {}).get("gpus", [])
    return {holder.get("pid") for gpu in gpus for holder in gpu.get("holders", [])}


def probe_cost(machine: Machine) -> Iterator[Figure]:
    """What the probe's hooks take of a step of some 5 ms, as `make bench ONLY=probe` measures it."""
    size = probe.SIZES[probe.SHORT]._replace(steps=80 * probe.GROUPS)
    if machine.is_small:
        size = size._replace(batch=8, block=5, steps=20 * probe.GROUPS)
    more = ["--device", "cuda", "--layers", str(LAYERS)] if machine.kind == "cuda" else []
    measured = probe.measured(machine.product, machine.folder / "probe", size, more)
    yield next(probe.figures_of(probe.SHORT, *measured))


LAYERS = 64
"""Of so many a step is bound by the host, which takes some 5 ms to queue it."""


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / MIB:.0f} MiB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
