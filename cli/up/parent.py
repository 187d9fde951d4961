"""The parent process of `rankzero up`: start dashboard and worker, keep them running, and end everything."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.server.client import ServerClient, find_server
from cli.terminal import CommandFailed, printable
from cli.up.children import ProgramCommand, SupervisedProgram
from cli.up.local_nodes import ClusterNode, Orders, shares_of_gpus
from dashboard.cluster.joining import outward_address, own_url
from dashboard.private_files import hold_lock, make_private_directory
from dashboard.security.keys.token_files import TokenUnusable, join_token_path, read_or_create
from domain.clients.addresses import Address
from domain.network import certificate_file
from domain.network.trust import CA_FILE
from domain.text.formats import plural
from worker.node.processes import find
from worker.node.state_files import read_object

TICK_S = 0.1
LATE_AFTER_S = 60.0
"""Seconds after which a dashboard that is still starting is said to be."""
READY_WITHIN_S = 900.0
"""Seconds that it then has: on a busy machine others take most of the processor."""
NODE_WITHIN_S = 30.0
DEMO_NODE_WITHIN_S = 180.0
"""Seconds that a node has where the demo waits for it: a busy machine would else show no demo."""
GRACE_S = 15.0
"""Seconds between SIGTERM and SIGKILL for runs at Ctrl-C."""
ECHO_S = 0.2
"""Seconds within which two signals count as one Ctrl-C."""
MARGIN_S = 15.0
"""Seconds beyond the grace period in which the worker stores the runs' last output."""
DASHBOARD_GRACE_S = 8.0
PORT_PATIENCE_S, LONG_PORT_PATIENCE_S = 3.0, 30.0
"""The second for a killed dashboard that is still there: on a busy machine its end takes a while."""
TRIM_EVERY_S = 60.0


@dataclass(frozen=True)
class Plan:
    """The options of `rankzero up`."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8765
    tls_cert: Path | None = None
    tls_key: Path | None = None
    slots: int | None = None
    has_worker: bool = True
    nodes: int = 1
    """Workers on this machine."""
    demo: bool = False
    python: str | None = None
    new_store: bool = False
    run_as: Sequence[str] = ()


def run(plan: Plan) -> int:
    """Run until a signal arrives and return the exit code. Raises CommandFailed where it cannot start."""
    try:
        make_private_directory(plan.data)
    except OSError as error:
        raise _unusable(plan.data, error) from None
    with only_one(plan.data):
        if plan.run_as and plan.nodes > 1:  # accounts pass through to the data of each node
            from worker.agent.accounts.places import open_way  # imports a whole worker

            (plan.data / "nodes").mkdir(exist_ok=True)
            open_way(plan.data)
        publish_certificate(plan)
        return Parent(plan, free_port(plan)).run()


def publish_certificate(plan: Plan) -> None:
    """Write the certificate to where the worker finds it, which starts beside the dashboard.

    Raises CommandFailed where it cannot be used."""
    if plan.tls_cert is None:
        return
    from dashboard.security.keys.certificates import CertificateUnusable, ServerCertificate, publish

    try:
        publish(ServerCertificate(plan.tls_cert, plan.tls_key), plan.data)
    except CertificateUnusable as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise _unusable(plan.data, error) from None


@contextmanager
def only_one(data: Path) -> Iterator[None]:
    """Hold the lock that allows one `rankzero up` per data directory; it ends with the process.

    Raises CommandFailed where another process holds it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(data / "up.lock"))
        except BlockingIOError:
            url = _url_in(data)
            raise CommandFailed(
                f"Rankzero already runs on {data}{f' ({url})' if url else ''}. "
                "Use that one, or choose another directory with --data."
            ) from None
        except OSError as error:
            raise _unusable(data, error) from None
        yield


def _unusable(data: Path, error: OSError) -> CommandFailed:
    return CommandFailed(
        f"{data} cannot be used: {error.strerror}. Make it a folder that this user can write, or choose another "
        "with --data."
    )


def free_port(plan: Plan) -> int:
    """Return the port to listen on, waiting briefly for one that a killed dashboard still holds.

    Raises CommandFailed where it cannot be bound."""
    deadline = time.monotonic() + _patience_s(plan)
    while True:
        try:
            return _bound_port(plan.host, plan.port)
        except OSError as error:
            in_use = error.errno in (48, 98)  # EADDRINUSE on macOS, on Linux
            if not in_use:
                raise CommandFailed(
                    f"Cannot listen on {plan.host}:{plan.port}: {error.strerror}; choose --host and --port."
                ) from None
            if time.monotonic() >= deadline:
                raise CommandFailed(
                    f"Port {plan.port} is taken by another program; choose one with --port (0: any free one)."
                ) from None
            time.sleep(TICK_S)


class Parent:
    """The owner of the two children, from their start to the proof that no process is left."""

    def __init__(self, plan: Plan, port: int) -> None:
        self.plan, self.port = plan, port
        self.is_ending = self.is_hurried = False
        self._ending_since = 0.0
        new_store = ["--new-store"] * plan.new_store  # after a restart the store exists, so the option has no effect
        files = {"--tls-cert": plan.tls_cert, "--tls-key": plan.tls_key}
        tls = [argument for name, path in files.items() if path is not None for argument in (name, str(path))]
        self.dashboard = SupervisedProgram(
            self._program("dashboard", ["--host", plan.host, "--port", str(port), *tls, *new_store])
        )
        self.nodes = self._nodes() if plan.has_worker else []
        self._trim_at = 0.0

    @property
    def url(self) -> str:
        """The dashboard's URL on this machine."""
        return own_url(self.plan.host, self.port, self.scheme)

    @property
    def scheme(self) -> str:
        """The scheme of its addresses."""
        return "http" if self.plan.tls_cert is None else "https"

    def run(self) -> int:
        """Start the children, print the address, wait for a signal, and stop. Returns the exit code."""
        signals = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            signals.append(signal.SIGHUP)
        old_handlers = [signal.signal(number, self._note_signal) for number in signals]
        try:
            self._serve()
        finally:
            code = self.stop()
            for number, handler in zip(signals, old_handlers, strict=True):
                signal.signal(number, handler)
        return code

    def _note_signal(self, number: int, _frame: object) -> None:
        """End at any signal, at once at another Ctrl-C; `make` may deliver one Ctrl-C twice."""
        now = time.monotonic()
        if not self.is_ending:
            self.is_ending, self._ending_since = True, now
        elif number == signal.SIGINT and now - self._ending_since > ECHO_S:
            self.is_hurried = True

    def _serve(self) -> None:
        self._create_join_token()
        if not self._await_dashboard():
            return
        server = ServerClient(find_server(self.plan.data))
        path = "/"
        if self.nodes:
            slots = self._slots_of_a_node(server)
            nodes = min(DEMO_RANKS, len(self.nodes))
            path = f"/run?id={launch_demo(server, slots, nodes)}" if self.plan.demo and slots else "/"
        if not self.is_ending:
            self._print_address(server.address, path)
        orders = Orders(self.nodes, print_line)
        while not self.is_ending:
            self._step()
            orders.follow()
            time.sleep(TICK_S)

    def _await_dashboard(self) -> bool:
        """Wait until the dashboard answers; returns False at a signal. Raises CommandFailed."""
        log = self.dashboard.program.log
        if self._wait_for(self._dashboard_answers, LATE_AFTER_S, must_live=self.dashboard):
            return True
        if not self.is_ending:
            print_line(f"The dashboard is still starting; its log is {log}.")
        if self._wait_for(self._dashboard_answers, READY_WITHIN_S, must_live=self.dashboard) or self.is_ending:
            return not self.is_ending
        raise CommandFailed(f"The dashboard has not answered within {READY_WITHIN_S / 60:g} minutes; its log is {log}.")

    def _create_join_token(self) -> None:
        """Create what the worker joins with: it starts beside the dashboard, which would create it later."""
        if self.nodes:
            try:
                read_or_create(join_token_path(self.plan.data))
            except (OSError, TokenUnusable) as error:
                raise CommandFailed(f"The worker has no join token: {error}") from None

    def _slots_of_a_node(self, server: ServerClient) -> int:
        """Wait for the nodes and return the most slots of one: users may launch as soon as they see the address."""
        slots: list[int] = []
        within_s = DEMO_NODE_WITHIN_S if self.plan.demo else NODE_WITHIN_S

        def have_joined() -> bool:
            nonlocal slots
            slots = slots_of_nodes(server)
            return len(slots) >= len(self.nodes)

        if not self._wait_for(have_joined, within_s) and not self.is_ending:
            logs = ", ".join(str(node.worker.program.log) for node in self.nodes)
            missing = f"Only {len(slots)} of {len(self.nodes)} workers have" if slots else "No worker has"
            verb = "log is" if len(self.nodes) == 1 else "logs are"
            print_line(f"{missing} joined within {within_s:g} s; the {verb} {logs}.")
        return max(slots, default=0)

    def _print_address(self, address: Address, path: str) -> None:
        query = "&" if "?" in path else "?"
        print_line(f"\n  Open      {self.url}{path}{query}token={address.token}")
        if self.plan.host in ("0.0.0.0", "::", ""):  # nosec B104: compares, and listens to nothing
            elsewhere = own_url(outward_address(), self.port, self.scheme)
            print_line(f"  Elsewhere {elsewhere}/  (log in with `rankzero token`)")
        print_line(f"  Data      {self.plan.data}")
        print_line("\nCtrl-C ends the runs and stops everything.\n")

    def _children(self) -> list[SupervisedProgram]:
        return [self.dashboard, *(node.worker for node in self.nodes)]

    def _step(self) -> None:
        now = time.monotonic()
        for child in self._children():
            message = child.step(now)
            if message:
                print_line(message)
        if now >= self._trim_at:
            self._trim_at = now + TRIM_EVERY_S
            for child in self._children():
                child.trim_log()

    def _wait_for(
        self, condition: Callable[[], bool], timeout_s: float, must_live: SupervisedProgram | None = None
    ) -> bool:
        """Keep the children running until the condition holds; returns False at a signal or timeout."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not self.is_ending:
            for child in self._children():
                message = child.step(time.monotonic())
                if message and child is must_live:
                    reason = child.last_line() or f"its log is {child.program.log}."
                    raise CommandFailed(f"The {child.program.name} could not start: {reason}")
                if message:
                    print_line(message)
            with suppress(CommandFailed):
                if condition():
                    return True
            time.sleep(TICK_S)
        return False

    def _dashboard_answers(self) -> bool:
        """Whether our own dashboard answers; its file names its process, so another listener does not count."""
        try:
            about = json.loads((self.plan.data / "server.json").read_text())
        except (OSError, ValueError):
            return False
        if about.get("pid") != self.dashboard.pid:
            return False
        ServerClient(find_server(self.plan.data)).get("/api/health")
        return True

    def stop(self) -> int:
        """End the runs, the worker and the dashboard in turn, or all at once at a second signal.

        Returns the exit code."""
        was_asked, self.is_ending = self.is_ending, True
        self._end_runs()
        self.dashboard.send(signal.SIGTERM)
        self._wait_until(lambda: not self.dashboard.is_running, DASHBOARD_GRACE_S)
        self.dashboard.send(signal.SIGKILL)
        self._wait_until(lambda: not self.dashboard.is_running, DASHBOARD_GRACE_S, can_hurry=False)
        if was_asked:
            print_line("Stopped.")
        return 130 if self.is_hurried else 0

    def _end_runs(self) -> None:
        count = len({run_id for node in self.nodes for run_id in node.processes.run_ids()})
        if count:
            print_line(f"stopping {plural(count, 'run')}: SIGTERM sent, up to {GRACE_S:g} s")
        for node in self.nodes:
            if not node.worker.is_running:
                node.processes.terminate()
            node.worker.send(signal.SIGTERM)  # it ends the runs, and stores what they wrote last
        self._wait_until(lambda: not any(node.is_busy() for node in self.nodes), GRACE_S + MARGIN_S)
        for node in self.nodes:
            node.fail()

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float, can_hurry: bool = True) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition() and time.monotonic() < deadline and not (can_hurry and self.is_hurried):
            time.sleep(TICK_S)

    def _nodes(self) -> list[ClusterNode]:
        """Return the node of this machine, or several with names and data directories of their own."""
        data, count = self.plan.data, self.plan.nodes
        if count == 1:
            return [ClusterNode("worker", data, self._program("worker", self._worker_options()))]
        nodes = []
        for number, env in enumerate(shares_of_gpus(count), 1):
            program = self._program("worker", ["--name", f"node-{number}", *self._worker_options()])
            nodes.append(ClusterNode.beside_others(program, f"node-{number}", data, env))
        return nodes

    def _program(self, name: str, options: list[str]) -> ProgramCommand:
        command = [sys.executable, "-P", "-m", "cli.main", name, "--data", str(self.plan.data), *options]
        # A token or URL in our environment may be another dashboard's.
        env = {k: v for k, v in os.environ.items() if k not in ("RANKZERO_TOKEN", "RANKZERO_URL")}
        if self.plan.nodes > 1:  # between nodes of one machine there is no network to measure
            env.setdefault("RANKZERO_PREFLIGHT_BANDWIDTH", "false")
        if self.plan.tls_cert is not None:
            env |= {CA_FILE: str(self.plan.data / certificate_file.NAME)}
        return ProgramCommand(name, command, self.plan.data / f"{name}.log", env)

    def _worker_options(self) -> list[str]:
        options = ["--server", self.url, "--token-file", str(join_token_path(self.plan.data)), "--stop-runs"]
        options += ["--slots", str(self.plan.slots)] if self.plan.slots is not None else []
        options += [part for entry in self.plan.run_as for part in ("--run-as", entry)]
        return options + (["--python", self.plan.python] if self.plan.python is not None else [])


def print_line(text: str) -> None:
    """Print to the terminal, ignoring that it may be closed."""
    with suppress(OSError, ValueError):
        print("\n".join(printable(line) for line in text.split("\n")), flush=True)


def _bound_port(host: str, port: int) -> int:
    family, kind, protocol, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        return int(probe.getsockname()[1])


def _patience_s(plan: Plan) -> float:
    """How long the last dashboard of this data may still hold the port."""
    if not str(_url_in(plan.data)).endswith(f":{plan.port}"):
        return 0.0
    return LONG_PORT_PATIENCE_S if find(_server_in(plan.data).get("pid", 0)) else PORT_PATIENCE_S


def _url_in(data: Path) -> str | None:
    url = _server_in(data).get("url")
    return None if url is None else str(url)


def _server_in(data: Path) -> dict[str, Any]:
    """The last dashboard's own record; empty where nothing can be read."""
    return read_object(data / "server.json")


# The run that `rankzero up --demo` launches: real data, two ranks, several minutes long.

DEMO_NAME = "demo"
DEMO_RANKS = 2
TERMINAL = ("succeeded", "failed", "stopped")
DEMO_STEPS = {"cpu": 7_000, "cuda": 100_000}
"""Enough for more than five minutes: a step takes about 90 ms on two CPU cores and 5 ms on a GPU."""
DEMO_STEPS_PER_EPOCH = 5_621
"""Steps of an epoch with two ranks and eight samples each."""


def demo_spec(slots: int, kind: str = "cpu", nodes: int = 1) -> dict[str, Any]:
    """Return the spec of a byte-level GPT that trains on the Python standard library's sources.

    On several nodes it goes on without one that fails."""
    several = {"nodes": nodes, "min_nodes": 1, "max_restarts": 3} if nodes > 1 else {}
    return several | {
        "target": "language_model",
        "name": DEMO_NAME,
        "gpus_per_node": min(DEMO_RANKS // nodes, slots),
        "batch_size": 8,
        "lr": 0.0007,
        "lr_scaling": "linear",
        "warmup_steps": 100,
        "epochs": -(-DEMO_STEPS[kind] // DEMO_STEPS_PER_EPOCH),
        "max_steps": DEMO_STEPS[kind],
        "seed": 1,
        "stop_grace_s": 15,
        "args": [f"--checkpoint-every={DEMO_STEPS[kind] // 14}"],
    }


def slots_of_nodes(server: ServerClient) -> list[int]:
    """Return the slots of each online node."""
    nodes: list[dict[str, Any]] = server.get("/api/nodes")
    return [int(node["slots"]) for node in nodes if node["state"] == "alive" and node["slots"]]


def launch_demo(server: ServerClient, slots: int, nodes: int = 1) -> str:
    """Return the id of the demo run that has not ended, or launch a new one."""
    for run in server.get("/api/runs", q=DEMO_NAME):
        if run["name"] == DEMO_NAME and run["state"] not in TERMINAL:
            return str(run["id"])
    kinds = {device["kind"] for node in server.get("/api/nodes") for device in node["devices"]}
    return str(server.post("/api/runs", demo_spec(slots, "cuda" if "cuda" in kinds else "cpu", nodes))["id"])
