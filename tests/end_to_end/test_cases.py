"""Scripts as people write them (`tests/cases`): what each shows in the end, by series, checkpoints and sentences."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.product import ENDED, WAIT_S, Product, wait_for
from tests.end_to_end.watching import assert_nothing_is_left, environment, new_run, run_ids

pytestmark = pytest.mark.real

CASES = Path(__file__).parents[1] / "cases"
LEFT = "exit code 0 after step 20 while rank 0 continued"
ASKS_FOR_SECRET = "asks for a password on its standard input"
ASKS = "asks for input on its standard input, which a launched run does not have, train.py line"


@dataclass(frozen=True)
class Case:
    """How a case is launched, and what is right."""

    folder: str
    processes: int = 2
    args: tuple[str, ...] = ()
    spec: dict[str, Any] = field(default_factory=dict)
    state: str = "succeeded"
    says: tuple[str, ...] = ()
    """Parts of the run's sentence and of its next step."""
    curves: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By name: the number of points, the first and the last step."""
    last: dict[str, float] = field(default_factory=dict)
    has_no: tuple[str, ...] = ()
    """Names that no series has in its last part."""
    checkpoints: dict[str, int | None] | None = None
    """Step by name below the working directory; None: not looked at."""
    log: str = ""
    finding: str = ""
    """A part of one of the run's findings."""

    @property
    def name(self) -> str:
        """Of the test."""
        return " ".join((self.folder, *self.args, *self.spec.get("env", {}).values()))


OLD_LINES = dict.fromkeys(("loss", "loss_cls", "loss_bbox", "lr", "time", "data_time", "memory"), (12, 10, 120))
YOLO = {f"{name}_loss": (5, 1, 5) for name in ("box", "cls", "dfl")} | {"val/map50": (5, 1, 5)}
TITAN = dict.fromkeys(("loss", "grad_norm", "memory_bytes", "tps", "tflops", "mfu"), (30, 1, 30))
DETECTRON = dict.fromkeys(("total_loss", "loss_cls", "loss_box_reg", "time", "data_time", "lr", "max_mem"), (5, 19, 99))
TIMM = dict.fromkeys(("train/loss", "train/lr", "train/time_s"), (20, 0, 79)) | {"val/acc@1": (4, 19, 79)}
OUTPUT = "output/train/20260101-100000-toy"
RUNS_AGAIN = ("the script runs again in every process that it starts", 'Add the line `if __name__ == "__main__":`')

QUICK = [
    Case(
        "06-steps-back", 1, curves={"loss": (200, 0, 199), "rare": (7, 0, 180)},
        last={"loss": 1199.0, "rare": 1000.0},
    ),
    Case(
        "07-two-writers", 1,
        curves=dict.fromkeys(("Loss", "val:Loss", "only/train", "only/val"), (200, 0, 199)),
        last={"Loss": -0.865213, "val:Loss": 4.498595},
    ),
    Case("15-early-leaver", args=("osexit",), state="failed", says=("rank 1 on ", LEFT)),
    Case(
        "22-wrong-interface", spec={"env": {"GLOO_SOCKET_IFNAME": "bond7"}}, state="failed",
        says=("bond7", "GLOO_SOCKET_IFNAME", "does not exist"),
    ),
]  # fmt: skip
LONG = [
    Case("02b-rank0-late", curves={"train/loss": (30, 0, 29), "rank1:train/loss": (30, 0, 29)}),
    Case(
        "03-yolo-table", spec={"launcher": "python"}, curves=YOLO, last={"val/map50": 0.44},
        checkpoints={f"runs/detect/train/weights/{which}.pt": None for which in ("last", "best")},
    ),
    Case("03b-spawned", spec={"launcher": "python"}, curves={"loss": (60, 0, 59)}),
    Case(
        "04-mm-lines", curves=OLD_LINES | {"train/loss": (2, 350, 400), "val/bbox_map": (3, 40, 120)},
        last={"val/bbox_map": 0.312, "val/bbox_map_s": -1.0, "train/loss": 0.4, "val/coco/bbox_map": 0.456},
        has_no=("eta",),
    ),
    Case("06-steps-back", 1, args=("plain",), curves={"loss": (200, 0, 199)}, last={"loss": 1199.0}),
    Case(
        "08-add-scalars", 1, args=("runs",), spec={"entry": "make.py"},
        curves=dict.fromkeys(("loss/train", "loss/val", "lr", "runs/b:loss/val", "runs/b:lr"), (50, 0, 49)),
        last={"loss/val": 0.04, "lr": 0.1, "runs/b:lr": 0.01, "hparams:best_acc": 0.2},
    ),
    Case(
        "11-index-first", 1, checkpoints={"out/hf-step-20.tar": 20, "out/plain-step-40.tar": 40},
        finding="hf-step-60",
    ),
    Case("15-early-leaver", args=("sysexit",), state="failed", says=("rank 1 on ", LEFT)),
    Case("15-early-leaver", args=("return",), state="failed", says=("rank 1 on ", LEFT)),
    Case(
        "17-asks-a-question", args=("input",), state="failed", says=(ASKS,),
        log="results exists. Overwrite it? [y/N]",
    ),
    Case("17-asks-a-question", args=("getpass",), state="failed", says=(ASKS_FOR_SECRET,), log="API key:"),
    Case("17-asks-a-question", args=("breakpoint",), state="failed", says=("breakpoint", "train.py line")),
    Case(
        "22-wrong-interface", spec={"env": {"GLOO_SOCKET_IFNAME": "^lo,docker"}}, state="failed",
        says=("^lo,docker", "GLOO_SOCKET_IFNAME"),
    ),
    Case(
        "23-colour-lines", curves=TITAN | DETECTRON,
        last={"tps": 7030.0, "memory_bytes": 9.46 * 1024**3, "max_mem": 1962e6}, has_no=("eta",),
    ),
    *(
        Case("45-spawn-loader", args=(method,), spec={"entry": "guarded.py"}, curves={"loss": (24, 1, 24)})
        for method in ("spawn", "forkserver")
    ),
]  # fmt: skip


EVERY_CASE = [*QUICK, *(pytest.param(case, marks=pytest.mark.long) for case in LONG)]
UNLIKE = {"17-asks-a-question"}
"""A watched script has the terminal of the person who started it, and may ask."""


@pytest.mark.parametrize("case", EVERY_CASE, ids=lambda case: case.name)
def test_a_script_shows_what_is_right(product: Product, case: Case) -> None:
    assert_right(product, case, launched(product, case))


@pytest.mark.parametrize("case", EVERY_CASE, ids=lambda case: case.name)
def test_a_script_that_is_watched_shows_the_same(product: Product, case: Case, tmp_path: Path) -> None:
    if case.folder not in UNLIKE:
        assert_right(product, case, watched(product, case, tmp_path))


def assert_right(product: Product, case: Case, run: dict[str, Any]) -> None:
    """Check a run that has ended against what is right of its script."""
    assert run["state"] == case.state and run["started_at"], run
    explanation = f"{run['message']} {run['next_step']}"
    assert [part for part in case.says if part not in explanation] == [], explanation
    curves = curves_of(product, run["id"])
    spans = {name: (len(steps), min(steps), max(steps)) for name, (steps, _) in curves.items()}
    assert {name: spans.get(name) for name in case.curves} == case.curves, spans
    assert {name: curves[name][1][-1] for name in case.last} == pytest.approx(case.last, rel=1e-4)
    assert {name.rpartition("/")[2] for name in curves}.isdisjoint(case.has_no)
    assert all(steps == sorted(set(steps)) for steps, _ in curves.values())
    if case.checkpoints is not None:
        assert {name: step for name, (step, _) in checkpoints(product, run["id"]).items()} == case.checkpoints
    assert case.finding in str(product.get(f"/api/runs/{run['id']}/findings"))
    assert case.log in "".join(
        product.request("GET", f"/api/runs/{run['id']}/logs?stream={stream}").text for stream in ("out", "err")
    )


@pytest.mark.long
def test_a_clean_exit_after_sigterm_from_outside_is_named_and_resumed_at_its_step(product: Product) -> None:
    run_id = product.launch(CASES / "18-swallows-term/train.py", gpus_per_node=2)
    product.wait_step(run_id, 20)
    for rank in product.ranks(run_id).values():
        rank.send_signal(signal.SIGTERM)
    run = product.wait_state(run_id)
    assert run["state"] == "stopped" and "got SIGTERM from outside" in run["message"]
    step = run["step"]
    assert checkpoints(product, run_id).keys() == {"preempted.pt"}
    assert product.request("POST", f"/api/runs/{run_id}/resume").status_code == 200
    product.wait_step(run_id, step + 5)
    product.request("POST", f"/api/runs/{run_id}/stop")
    assert product.wait_state(run_id)["state"] == "stopped"
    answer = product.request("GET", f"/api/runs/{run_id}/logs?attempt=2").text
    assert answer.startswith(f"step {step + 1}/400:")


@pytest.mark.long
def test_a_rank_that_leaves_the_loop_and_lingers_is_named(product: Product) -> None:
    script = CASES / "15-early-leaver/train.py"
    run_id = product.launch(script, gpus_per_node=2, args=["linger"], hang_after_s=10)
    (finding, *_) = wait_for(lambda: product.get(f"/api/runs/{run_id}/findings"), "a finding")
    assert finding["kind"] == "hung"
    assert "rank 1 never came: it is elsewhere after all_reduce #26 (train.py line 11" in finding["evidence"]
    product.request("POST", f"/api/runs/{run_id}/stop")
    assert product.wait_state(run_id)["state"] == "stopped"


@pytest.mark.long
def test_a_stopped_run_has_the_checkpoint_that_it_saves_when_asked(product: Product) -> None:
    run_id = product.launch(CASES / "18-swallows-term/train.py", gpus_per_node=2)
    product.wait_step(run_id, 20)
    product.request("POST", f"/api/runs/{run_id}/stop")
    assert product.wait_state(run_id)["state"] == "stopped"
    assert checkpoints(product, run_id).keys() == {"preempted.pt"}


@pytest.mark.long
def test_links_to_one_file_are_listed_and_the_newest_is_resumed(product: Product) -> None:
    run = launched(product, Case("13-timm-links"))
    curves, listed = curves_of(product, run["id"]), checkpoints(product, run["id"])
    spans = {name: (len(steps), min(steps), max(steps)) for name, (steps, _) in curves.items()}
    assert {name: spans.get(name) for name in TIMM} == TIMM, spans
    names = {f"{OUTPUT}/{name}.pth.tar" for name in ("last", "model_best", "checkpoint-3", "checkpoint-2")}
    assert names <= listed.keys() and all(complete for _, complete in listed.values())
    assert product.request("POST", f"/api/runs/{run['id']}/resume").status_code == 200
    resumed = wait_for(lambda: resumed_from(product, run["id"]), "the checkpoint of the second attempt")
    assert resumed.rpartition("/")[2] in {"last.pth.tar", "checkpoint-3.pth.tar"}
    product.wait_state(run["id"])


def launched(product: Product, case: Case) -> dict[str, Any]:
    """Launch a case and wait for its end."""
    folder = CASES / case.folder
    target = folder if "entry" in case.spec else folder / "train.py"
    spec = {"gpus_per_node": case.processes, "args": list(case.args)} | case.spec
    return product.wait_state(product.launch(target, **spec))


def watched(product: Product, case: Case, tmp_path: Path) -> dict[str, Any]:
    """Start a case as a person does, with `rankzero watch` in front, and wait for what the dashboard has of its end."""
    folder, own, before = tmp_path / case.folder, tmp_path / "data", run_ids(product)
    shutil.copytree(CASES / case.folder, folder)
    script = [case.spec.get("entry", "train.py"), *case.args]
    is_alone = case.processes == 1 or case.spec.get("launcher") == "python"
    start = ["python"] if is_alone else ["torchrun", "--standalone", f"--nproc-per-node={case.processes}"]
    ended = subprocess.run(
        [Path(sys.executable).with_name("rankzero"), "watch", "--", *start, *script],
        cwd=folder, env=os.environ | environment(product, own) | case.spec.get("env", {}),
        stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S,
    )  # fmt: skip
    run = product.wait_state(new_run(product, before, ended.stderr.decode))
    assert (ended.returncode == 0) == (run["state"] == "succeeded"), ended.stderr.decode()
    assert_nothing_is_left(own)
    return run


def curves_of(product: Product, run_id: str) -> dict[str, tuple[list[int], list[float]]]:
    """Steps and values by name, printed ones without `printed/`."""
    shown = {}
    for source in ("events", "printed"):
        for name, points in product.get(f"/api/runs/{run_id}/metrics?source={source}").items():
            shown[name.removeprefix("printed/")] = ([p[0] for p in points], [p[1] for p in points])
    return shown


def checkpoints(product: Product, run_id: str) -> dict[str, tuple[int | None, bool]]:
    """Step and whether it is complete by name below the working directory."""
    listed = product.get(f"/api/runs/{run_id}/checkpoints")
    return {c["name"].removeprefix("work/").removeprefix("workdir/"): (c["step"], c["complete"]) for c in listed}


def resumed_from(product: Product, run_id: str) -> str:
    """The name of the checkpoint that the last attempt was given; "" while there is none."""
    attempts = product.get(f"/api/runs/{run_id}/attempts")
    return str(max(attempts, key=lambda attempt: attempt["number"])["resumed_from"] or "")


LOUD = """
import os, sys
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(1, 101):
    if dist.get_rank() == 0:
        print(f"step {step} loss {1 / step:.4f}", flush=True)
        os.write(2, (b"UserWarning: the weights of this layer were not initialised " + b"x" * 900 + b"\\n") * 500)
        os.write(1, b"." * 100_000)
        os.write(1, b"\\n")
if dist.get_rank() == 1:
    raise ValueError("bad label 17 in the last batch")
dist.barrier()
"""


def test_a_script_that_runs_again_in_its_loader_is_named(product: Product) -> None:
    """Whether it fails or hangs depends on which of its processes is first."""
    run_id = product.launch(CASES / "45-spawn-loader" / "train.py", gpus_per_node=2)
    explanation = wait_for(lambda: explained(product, run_id), "its end, or a hang")
    assert [words for words in RUNS_AGAIN if words.lower() not in explanation.lower()] == [], explanation
    assert "script runs again" in str(product.get(f"/api/runs/{run_id}/findings"))
    if product.run(run_id)["state"] not in ENDED:
        product.request("POST", f"/api/runs/{run_id}/stop")
    product.wait_state(run_id)


def explained(product: Product, run_id: str) -> str | None:
    """Return the explanation of a run that failed or hangs, None while it does neither."""
    run = product.run(run_id)
    if run["state"] in ENDED:
        return f"{run['message']} {run['next_step']}"
    hangs = [finding for finding in product.get(f"/api/runs/{run_id}/findings") if finding["kind"] == "hung"]
    return str(hangs) if hangs else None


def test_a_loud_run_tells_its_end_and_all_of_its_log_arrives(product: Product, tmp_path: Path) -> None:
    """The small variant of a log of a gigabyte: the devices are free for the next run while it is sent."""
    (tmp_path / "loud.py").write_text(LOUD)
    run_id = product.launch(tmp_path / "loud.py", gpus_per_node=2)
    wait_for(lambda: product.run(run_id)["state"] == "failed", "its end")
    assert "bad label 17 in the last batch" in product.run(run_id)["message"]
    run = product.wait_state(run_id)
    assert (run["state"], run["step"]) == ("failed", 100)
    log = product.request("GET", f"/api/runs/{run_id}/logs?rank=0&stream=err")
    assert len(log.content) >= 100 * 500 * 960
