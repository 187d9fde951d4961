"""Rows on the recipes: precisions and the compiler by nccl, two GPUs, a checkpoint on the device and its resume."""

from __future__ import annotations

import hashlib
import re
import shutil
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figure, Spread
from benchmarks.gpu.machine import RECIPES, Machine, Wrong

NAMES = ("image_classifier", "language_model")
STEPS, FEW_STEPS = 40, 6
"""Of a run on a GPU, and of one that only shows that it runs."""
LAST = 10
"""Steps whose mean loss is compared: one alone differs by chance."""
CLOSE = {"fp32": 1.05, "bf16": 1.1, "fp16": 1.2}
"""How far a loss may be from the reference's, as a ratio; fp16 skips steps until its scale is found."""
LOSS = "train/loss"
PRINTED = re.compile(r"^step (\d+)/.*\| loss ([\d.]+)", re.MULTILINE)


def off_by(ours: float, theirs: float) -> Spread:
    """How far two positive figures are apart, as a ratio of at least 1; Wrong where one is no positive number."""
    if not (0 < ours < float("inf") and 0 < theirs < float("inf")):
        raise Wrong(f"{ours:g} and {theirs:g} cannot be compared")
    return Spread.of([max(ours / theirs, theirs / ours)])


def precision(machine: Machine, precision: str) -> Iterator[Figure]:
    """Both recipes by DDP on one device, against the same steps by hand on the CPU in fp32."""
    for name in NAMES:
        run = machine.train(name, **_spec(machine), precision=precision)
        _check_device(machine, run)
        theirs = on_cpu(machine, name)
        ours = loss(machine, run)
        label = f"{name}, {precision}, by {'nccl' if machine.kind == 'cuda' else 'gloo'}: loss of {run['step']} steps"
        yield Figure(label, f"{ours:.4f}", "by hand on the CPU, fp32", f"{theirs:.4f}", off_by(ours, theirs),
                     CLOSE[precision], "less")  # fmt: skip


def compiled(machine: Machine) -> Iterator[Figure]:
    """A recipe under torch.compile, against itself without."""
    machine.need("a C compiler", any(map(shutil.which, ("cc", "gcc", "clang"))))
    losses, step_s = {}, {}
    for way, args in (("eager", []), ("compiled", ["--compile"])):
        run = machine.train("language_model", **_spec(machine, *args))
        losses[way] = loss(machine, run)
        step_s[way] = min(value for _, value, _ in machine.points(run["id"], "train/step_time_s"))
    texts = {way: f"{losses[way]:.4f} ({step_s[way] * 1e3:.1f} ms a step)" for way in losses}
    yield Figure("language_model, torch.compile: loss of the last step", texts["compiled"], "without it",
                 texts["eager"], off_by(losses["compiled"], losses["eager"]), CLOSE["bf16"], "less")  # fmt: skip


def two_devices(machine: Machine) -> Iterator[Figure]:
    """Two ranks with half the batch each, against one with the whole."""
    machine.need("two GPUs", machine.devices >= 2)
    whole = machine.train("language_model", **_spec(machine), batch_size=8)
    halves = machine.train("language_model", **_spec(machine) | {"gpus_per_node": 2}, batch_size=4)
    reported = machine.product.get(f"/api/runs/{halves['id']}/collectives")["ranks"]
    if reported and len(reported) != 2:  # torch before 2.8 cannot be asked
        raise Wrong(f"{len(reported)} of 2 ranks reported their collectives")
    ours, theirs = (loss(machine, run) for run in (halves, whole))
    yield Figure("language_model on two devices: loss of the last step", f"{ours:.4f}", "one device, twice the batch",
                 f"{theirs:.4f}", off_by(ours, theirs), CLOSE["fp32"], "less")  # fmt: skip


def resumed(machine: Machine) -> Iterator[Figure]:
    """A run that goes on from the middle of another, from the checkpoint that the server has."""
    steps = _steps(machine)
    whole = machine.train("language_model", **_spec(machine, "--checkpoint-every", str(steps // 2)))
    listed = machine.product.get(f"/api/runs/{whole['id']}/checkpoints")
    half = next((one for one in listed if one["step"] == steps // 2 and one["complete"]), None)
    if half is None:
        raise Wrong(f"there is no complete checkpoint of step {steps // 2} among {[one['name'] for one in listed]}")
    content = machine.product.request("GET", f"/api/checkpoints/{half['id']}/file").content
    if hashlib.sha256(content).hexdigest() != half["sha256"]:
        raise Wrong(f"{half['name']} has another SHA-256 than its node counted")
    again = machine.train("language_model", **_spec(machine), resume=f"{whole['id']}:{half['name']}")
    points = machine.points(again["id"], LOSS)
    if points[0][0] != steps // 2 + 1:
        raise Wrong(f"it went on at step {points[0][0]:g} instead of {steps // 2 + 1}")
    ours, theirs = points[-1][1], machine.last(whole["id"], LOSS)
    yield Figure(f"resumed from step {steps // 2} on the device: loss of step {steps}", f"{ours:.4f}",
                 "the run that was not interrupted", f"{theirs:.4f}", off_by(ours, theirs), 1.02, "less")  # fmt: skip


def loss(machine: Machine, run: dict[str, Any]) -> float:
    """The mean loss of a run's last steps."""
    return statistics.fmean(value for _, value, _ in machine.points(run["id"], LOSS)[-LAST:])


def on_cpu(machine: Machine, name: str, losses: dict[tuple[str, int], float] = {}) -> float:  # noqa: B006 - measured once
    """The same of what the recipe prints by hand on the CPU."""
    steps = _steps(machine)
    if (name, steps) not in losses:
        folder = machine.folder / f"{name}-by-hand"
        argv = [RECIPES / f"{name}.py", "--strategy", "single", "--max-steps", steps, "--print-every", 1,
                "--output-dir", folder, *QUIET]  # fmt: skip
        printed = PRINTED.findall(machine.by_hand(list(map(str, argv)), CUDA_VISIBLE_DEVICES=""))
        if not printed or int(printed[-1][0]) != steps:
            raise Wrong(f"{name} by hand printed no loss of step {steps}")
        losses[name, steps] = statistics.fmean(float(value) for _, value in printed[-LAST:])
    return losses[name, steps]


QUIET = ("--val-every", "1000000", "--warmup-steps", "5")
"""A validation of the last step alone."""


def _spec(machine: Machine, *args: str) -> dict[str, Any]:
    return {"max_steps": _steps(machine), "args": [*QUIET, *args], "gpus_per_node": 1}


def _steps(machine: Machine) -> int:
    return FEW_STEPS if machine.is_small else STEPS


def _check_device(machine: Machine, run: dict[str, Any]) -> None:
    """Raise Wrong where the recipe trained elsewhere than on the devices of this machine."""
    expected = f"ddp on 1 x {machine.kind}"
    log = machine.product.request("GET", f"/api/runs/{run['id']}/logs?rank=0&stream=out").text
    if expected not in log:
        raise Wrong(f"the run's log does not say {expected!r}: {log[:200]!r}")
