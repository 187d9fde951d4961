"""What a checkpoint costs a training: saved where Rankzero takes it and sends it, and where nobody looks, in turns.

One unchanged script trains under Rankzero and saves by torch.save, now to its working directory and now to a folder
that nobody watches. The stall is the time from the beginning of the save, for as long as it takes until the checkpoint
is stored, less the time of the steps made meanwhile. Two whole runs, one under plain torchrun, differ by more.
"""

from __future__ import annotations

import bisect
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Figure, Spread, in_turns, ratios
from benchmarks.rows.start import started
from tests.end_to_end.hosts import Hosts, why_not
from tests.end_to_end.product import Product, wait_for
from worker.node.processes import AUTOGROUP

SCRIPT = Path(__file__).parents[1] / "scripts" / "saving_steps.py"
RANKS = {"a core to spare": 1, "all cores busy": 2}
MOST = {"linked": 1.1, "sent": 1.5}
"""The largest ratio to a plain save."""
USUAL_S = 3.0
"""Seconds of undisturbed steps before each save: how long a step usually takes."""
STORED_WITHIN_S = 2.0
"""The least time from one save to the next steps that count as undisturbed."""


def measure(quick: bool) -> Iterator[Figure]:
    """Seconds of training lost by a checkpoint, on the dashboard's own machine and on another host."""
    mib, rounds = (16, 1) if quick else (256, 5)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        for place, start in PLACES.items():
            if place == "sent" and (reason := why_not()):
                print(f"not measured, a checkpoint that is sent: {reason}", file=sys.stderr)
                continue
            product = start(Path(folder), running)
            for load, ranks in RANKS.items():
                training = Training(product, Path(folder) / f"{place}{ranks}", ranks, mib)
                seconds = training.stalls(rounds)
                ours, theirs = seconds["ours"], seconds["plain"]
                what = f"stall by a checkpoint of {mib} MiB, {place}, {load}"
                texts = [f"{Spread.of(each)} s" for each in (ours, theirs)]
                yield Figure(what, texts[0], "plain torch.save", texts[1], ratios(ours, theirs), MOST[place], "less")


def on_this_machine(folder: Path, running: ExitStack) -> Product:
    """A worker that shares the dashboard's disk, so that its checkpoints are linked there."""
    return started(folder / "here", running)


def on_another_host(folder: Path, running: ExitStack) -> Product:
    """A worker that sends its checkpoints over the network to the dashboard on the first host.

    Both hosts are this machine. The other's cores would be its own, so the dashboard has only what the ranks leave."""
    hosts = Hosts(2, folder)
    running.callback(hosts.clean_up)
    hosts.boot()
    hosts.start_dashboard()
    hosts.start_worker(hosts[1])
    wait_for(lambda: len(hosts.get("/api/nodes")) == 1, "the node", explain=hosts.tail)
    if AUTOGROUP.exists():
        for dashboard in hosts.dashboards():
            Path(f"/proc/{dashboard.pid}/autogroup").write_text("19")
    return hosts


PLACES: dict[str, Callable[[Path, ExitStack], Product]] = {
    "linked": on_this_machine,
    "sent": on_another_host,
}


class Training:
    """A run of the script, which is told where to save and when."""

    def __init__(self, product: Product, folder: Path, ranks: int, mib: int) -> None:
        self._product, self._folder = product, folder
        (folder / "elsewhere").mkdir(parents=True)
        arguments = [str(folder), "--mib", str(mib)]
        self._run_id = product.launch(SCRIPT, gpus_per_node=ranks, args=arguments, stop_grace_s=1)
        self._took_s = STORED_WITHIN_S
        """Seconds from the latest save until it was stored."""

    def stalls(self, rounds: int) -> dict[str, list[float]]:
        """Seconds that each save cost, in turns."""
        try:
            wait_for(lambda: len(self._times("steps")) > 20, "steps", explain=self._product.tail)
            self._ours()  # the first one fills memory that the others use again
            self._plain()
            return in_turns({"ours": self._ours, "plain": self._plain}, rounds)
        finally:
            self._product.request("POST", f"/api/runs/{self._run_id}/stop")
            self._product.wait_state(self._run_id)

    def _ours(self) -> float:
        stored = self._stored()
        began = self._save("latest.pt")
        wait_for(lambda: self._stored() - stored, "the checkpoint to be stored", pause_s=0.2)
        self._took_s = max(STORED_WITHIN_S, time.time() - began)
        return self._lost_s(began)

    def _plain(self) -> float:
        return self._lost_s(self._save(str(self._folder / "elsewhere" / "latest.pt")))

    def _save(self, path: str) -> float:
        """Let it save after some undisturbed steps; returns when that began."""
        time.sleep(USUAL_S)
        number, part = len(self._times("saves")), self._folder / "order.part"
        part.write_text(path)
        part.replace(self._folder / "order")
        return wait_for(lambda: self._times("saves")[number:], "the save")[0]

    def _lost_s(self, began: float) -> float:
        """Seconds from `began` on that were not spent on steps of the usual length."""
        ended = began + self._took_s
        while time.time() < ended:
            self._stored()  # both ways are asked about
            time.sleep(0.2)
        steps = self._times("steps")
        before, first, last = (bisect.bisect(steps, at) for at in (began - USUAL_S, began, ended))
        usual_s = (steps[first - 1] - steps[before]) / (first - 1 - before)
        return steps[last - 1] - began - (last - first) * usual_s

    def _stored(self) -> set[int]:
        found = self._product.get(f"/api/runs/{self._run_id}/checkpoints")
        return {checkpoint["id"] for checkpoint in found if checkpoint["complete"]}

    def _times(self, name: str) -> list[float]:
        path = self._folder / name
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [float(line) for line in lines if line.endswith("\n")]
