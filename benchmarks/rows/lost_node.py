"""From the power cut of a node to the next step on the other one, against an elastic torchrun typed by hand.

Two hosts are Linux namespaces on this machine. The cable of one is pulled before all its processes are killed, so that
nobody is told. A lost node is noticed by time-outs: Rankzero's is RANKZERO_LOST_AFTER_S, torchrun's the one that
the script gives its process group. Both are set alike, and the figures are what comes after them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.figures import Figure, Spread, in_turns, ratios
from benchmarks.rows.back_to_training import MOST_S, SCRIPT, STEPS, read_steps
from benchmarks.rows.start import BY_HAND, TORCHRUN
from tests.end_to_end.hosts import Host, Hosts, why_not
from tests.end_to_end.product import is_ready_to_start, wait_for

LOST_AFTER_S = 15.0
DEFAULT_TIMEOUT_S = 1800.0
"""torch's own for gloo; an elastic torchrun waits for it."""
RENDEZVOUS_PORT = 29400


def measure(quick: bool) -> Iterator[Figure]:
    """Seconds from the time-out to the first step of the ranks that go on."""
    if reason := why_not():
        print(f"not measured: {reason}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        hosts = Hosts(2, Path(folder), env={"RANKZERO_LOST_AFTER_S": str(LOST_AFTER_S)})
        running.callback(hosts.clean_up)
        hosts.start()
        cut = PowerCut(hosts, Path(folder))
        acts = {
            "torchrun": lambda: cut.by_hand(LOST_AFTER_S),
            "ours": lambda: cut.in_a_run(LOST_AFTER_S),
            "without a time-out": lambda: cut.in_a_run(DEFAULT_TIMEOUT_S),
        }
        seconds = in_turns(acts, 1 if quick else 3)
    theirs = seconds["torchrun"]
    rows = [("ours", "", "torchrun --nnodes=1:2", theirs), ("ours", "", "a limit", [MOST_S] * len(theirs))]
    rows += [("without a time-out", ", a script without a time-out", "a limit", [MOST_S] * len(theirs))]
    for act, more, peer, other in rows:
        what = f"power cut of a node to the next step, beyond {LOST_AFTER_S:g} s of silence{more}"
        texts = [f"{Spread.of(each)} s" for each in (seconds[act], other)]
        yield Figure(what, texts[0], peer, texts[1], ratios(seconds[act], other), 1, "less")


class PowerCut:
    """Two ranks on two hosts, of which the second goes without a word."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts, self._folder = hosts, folder

    def in_a_run(self, timeout_s: float) -> float:
        """Launch it with one restart, on one node if need be; returns seconds from the time-out to the next step."""
        hosts, steps = self._hosts, self._steps()
        hosts.ensure()
        more = {"nodes": 2, "min_nodes": 1, "gpus_per_node": 1, "max_restarts": 1, "stop_grace_s": 1}
        run_id = hosts.launch(SCRIPT, args=[str(steps), str(timeout_s)], **more)

        def may_cut() -> bool:
            is_stored = any(found["complete"] for found in hosts.get(f"/api/runs/{run_id}/checkpoints"))
            return is_stored and all(map(is_ready_to_start, hosts.get("/api/nodes")))

        try:
            return self._seconds(steps, may_cut)
        finally:
            hosts.request("POST", f"/api/runs/{run_id}/stop")
            hosts.wait_state(run_id)

    def by_hand(self, timeout_s: float) -> float:
        """The same with an elastic torchrun on each host, as typed by a user, and a disk that they share."""
        self._hosts.ensure()
        steps = self._steps()
        steps.mkdir()
        torchruns = [self._torchrun(host, steps, timeout_s) for host in self._hosts.hosts]
        try:
            return self._seconds(steps, lambda: True)
        finally:
            for torchrun in torchruns:
                kill_below(torchrun)

    def _torchrun(self, host: Host, steps: Path, timeout_s: float) -> subprocess.Popen[bytes]:
        meet = f"--rdzv-endpoint={self._hosts[0].address}:{RENDEZVOUS_PORT}"
        is_host = f"--rdzv-conf=is_host={str(host is self._hosts[0]).lower()}"
        elastic = [
            "--nnodes=1:2",
            "--max-restarts=1",
            "--rdzv-backend=c10d",
            meet,
            is_host,
            f"--local-addr={host.address}",
        ]
        command = [TORCHRUN, *elastic, "--nproc-per-node=1", str(SCRIPT), str(steps), str(timeout_s)]
        own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lan0"}
        return host.start("env", "-C", str(steps), *command, env=BY_HAND | own_store)

    def _steps(self) -> Path:
        return self._folder / f"steps{time.monotonic_ns()}"

    def _seconds(self, steps: Path, may_cut: Callable[[], bool]) -> float:
        files = [Path(f"{steps}.{host.name}.0") for host in self._hosts.hosts]
        wait_for(
            lambda: all(len(read_steps(file)) >= STEPS for file in files) and may_cut(),
            "steps",
            explain=self._hosts.tail,
        )
        before, cut_at = len(read_steps(files[0])), time.time()
        self._hosts[1].cut()
        self._hosts[1].kill_everything()
        pid = read_steps(files[0])[-1][1]
        after = wait_for(
            lambda: [line for line in read_steps(files[0])[before:] if line[1] != pid],
            "the next step",
            explain=self._hosts.tail,
        )
        assert int(after[0][2]) == 11, f"it did not continue from the checkpoint: {after[0]}"
        return float(after[0][0]) - cut_at - LOST_AFTER_S


def kill_below(entered: subprocess.Popen[bytes]) -> None:
    """Kill what a program that entered a host started there: it passes no signal on."""
    for process in psutil.Process(entered.pid).children(recursive=True):
        process.kill()
    entered.wait()
