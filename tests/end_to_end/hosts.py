"""Several hosts on this machine: Linux namespaces with an address, a host name, processes and files of their own.

A host is one process, the first of a PID namespace: when that goes, the kernel ends all that ran on the host and
takes its network along, also after Ctrl-C or `kill -9` of the tests. Nothing of it is visible in the machine's own
network, so harnesses do not collide. Every host is as awkward as hosts come: its name stands for 127.0.0.1, and
its default route leads through a network card (`eth0`) behind which nobody is; the others are behind `lan0`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import httpx2
import psutil

from tests.end_to_end.namespaces import (
    end,
    enter_network,
    first_process,
    lives,
    namespace,
    run_command,
    unshared,
)
from tests.end_to_end.product import WAIT_S, Product, is_ready_to_start, safely, wait_for

PORT = 8765
LAN = "10.77.0"
NAMES = "".join(["::1 localhost\n", *(f"{LAN}.{last} lan{last}.example\n" for last in range(1, 10))])
"""Else torch waits seconds for names of addresses, from a name server that no host reaches."""
BOOT = """
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
shift 2
for hidden; do mount -t tmpfs none "$hidden"; done
ip link set lo up
trap '' CHLD
echo up
exec sleep infinity
"""
"""What a host does at its start; as its first process it then lets the kernel reap what others leave."""


def why_not() -> str | None:
    """Why this machine cannot be several hosts, or None when it can."""
    if sys.platform != "linux":
        return "needs Linux: several hosts are made of network namespaces"
    if missing := [tool for tool in ("ip", "tc", "unshare", "nsenter", "setpriv", "setsid") if not shutil.which(tool)]:
        return f"needs {', '.join(missing)} (iproute2, util-linux) to make several hosts"
    probe = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "ip", "link", "add", "type", "veth"]
    made = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"needs root to make network namespaces: {made.stderr.strip()}" if made.returncode else None


class Host:
    """One machine with a network card towards the others."""

    def __init__(self, number: int, home: Path, others: Iterable[Path]) -> None:
        self.number, self.name, self.home = number, f"host{number}", home
        self.address = f"{LAN}.{number + 1}"
        self.data = home / "data"
        self.log = home / "host.log"
        self._others = list(others)
        self._started: list[subprocess.Popen[bytes]] = []
        self._network: ThreadPoolExecutor | None = None
        self._listening: list[socket.socket] = []

    def boot(self, switch: Switch) -> None:
        """Switch it on, with its cable plugged in."""
        home_of_names = self.home / "hosts"
        home_of_names.write_text(f"127.0.0.1 localhost {self.name}\n{NAMES}")
        self._unshare = unshared(
            ["--uts", "--mount", "--mount-proc"],
            [BOOT, "boot", self.name, str(home_of_names), *map(str, self._others)],
        )
        self.pid = first_process(self._unshare)
        self._network = ThreadPoolExecutor(1, initializer=enter_network, initargs=(self.pid,))
        switch.plug_in(self)
        for command in (
            f"addr add {self.address}/24 dev lan0",
            "link set lan0 up",
            "link add eth0 type veth peer name nowhere",
            f"addr add 192.168.77.{self.number + 1}/24 dev eth0",
            "link set eth0 up",
            "link set nowhere up",
            "route add default via 192.168.77.254 dev eth0",
        ):
            self.ip(command)

    def start(self, *argv: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a program on it."""
        enter = ["nsenter", "--target", str(self.pid), "--net", "--uts", "--mount", "--pid", "--", *argv]
        own = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
        with self.log.open("ab") as log:
            program = subprocess.Popen(enter, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=own | (env or {}))
        self._started.append(program)
        return program

    def ip(self, command: str) -> None:
        """Change its network, in the words of ip(8)."""
        run_command("nsenter", "--target", str(self.pid), "--net", "ip", *command.split())

    def cut(self) -> None:
        """Pull its cable: what is under way is lost without a word."""
        self.ip("link set lan0 down")

    def mend(self) -> None:
        """Plug the cable in again."""
        self.ip("link set lan0 up")

    def send_slowly(self, bytes_per_s: int) -> None:
        """Let what it sends to the others trickle; what it receives, and talks to itself, stays quick."""
        shape = f"dev lan0 root tbf rate {8 * bytes_per_s}bit burst 64kb latency 100ms"
        run_command("nsenter", "--target", str(self.pid), "--net", "tc", "qdisc", "replace", *shape.split())

    def inside(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Call a function in a thread that sees this host's network; sockets it makes stay there."""
        assert self._network is not None
        return self._network.submit(work, *given, **named).result()

    def take_port(self, port: int) -> None:
        """Listen there as a program does that never answers; as soon as nobody else does."""

        def listening() -> socket.socket | None:
            with suppress(OSError):
                return cast(socket.socket, self.inside(socket.create_server, ("0.0.0.0", port)))
            return None

        self._listening.append(wait_for(listening, f"port {port} to be free"))

    def wait_for_listener(self, port: int) -> None:
        """Wait until a program that was started here accepts connections at this port."""

        def is_listening() -> bool:
            with suppress(OSError):
                self.inside(socket.create_connection, (self.address, port)).close()
                return True
            return False

        wait_for(is_listening, f"port {port} of {self.name} to answer", explain=self.log.read_text)

    def free_ports(self) -> None:
        """Close what was taken."""
        while self._listening:
            self._listening.pop().close()

    def block_all_but(self, port: int) -> None:
        """As a firewall does that lets others in at one port only."""
        self._on_it("iptables", "-I", *f"INPUT -i lan0 -p tcp --syn ! --dport {port} -j DROP".split())

    def unblock(self) -> None:
        """Let everybody in again."""
        self._on_it("iptables", "-F", "INPUT")

    def fill_disk(self, folder: Path) -> None:
        """Give a folder a disk of its own, of one MiB."""
        self._on_it("mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder))

    def replace_file(self, path: Path, other: Path) -> None:
        """What the other hosts have at a path, this one has differently."""
        self._on_it("mount", "--bind", str(other), str(path))

    def unmount(self, path: Path) -> None:
        """As before `fill_disk` and `replace_file`."""
        self._on_it("umount", "--lazy", str(path))

    def _on_it(self, *argv: str) -> None:
        run_command("nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", *argv)

    def processes(self) -> list[psutil.Process]:
        """All that runs on it, but for its first process and what the tests hold to it from outside."""
        home = namespace(self.pid)
        return [
            process
            for process in psutil.process_iter()
            if process.pid != self.pid and home and namespace(process.pid) == home and lives(process)
        ]

    def find(self, *words: str) -> list[psutil.Process]:
        """Processes with all these words on their command line."""
        return [p for p in self.processes() if set(words) <= set(safely(p.cmdline, []))]

    def supervisor(self, run_id: str) -> psutil.Process:
        """What looks after a run here."""
        (matching,) = self.find("worker.attempt.supervisor", f"{run_id}/1")
        return matching

    def launcher(self, run_id: str) -> psutil.Process:
        """The run's torchrun here."""
        (matching,) = safely(self.supervisor(run_id).children, [])
        return psutil.Process(matching.pid)

    def of_run(self, run_id: str) -> list[psutil.Process]:
        """Every process of a run here: supervisor, torchrun, ranks."""
        return [
            p
            for p in self.processes()
            if safely(p.environ, {}).get("RANKZERO_RUN_ID") == run_id
            or any(word.startswith(f"{run_id}/") for word in safely(p.cmdline, []))
        ]

    def kill(self, victims: Iterable[psutil.Process]) -> None:
        """SIGKILL, all at once; waits until they are gone with what they hold, such as a port."""
        killed = list(victims)
        for victim in killed:
            safely(victim.kill, None)
        psutil.wait_procs(killed, timeout=WAIT_S)

    def kill_everything(self) -> None:
        """Every process; the host itself and its network stay."""
        while left := self.processes():
            self.kill(left)

    def switch_off(self) -> None:
        """As if the power had failed: processes and network are gone; the disk stays."""
        self.free_ports()
        if self._network is not None:
            self._network.shutdown()
        end(self._unshare)
        for program in self._started:
            program.wait(WAIT_S)


class Switch:
    """What the hosts' cables are plugged into."""

    def __init__(self) -> None:
        self._unshare = unshared(["--mount-proc"], ["echo up; exec sleep infinity", "switch"])
        self.pid = first_process(self._unshare)
        self._ip("link add lan type bridge")
        self._ip("link set lan up")

    def plug_in(self, host: Host) -> None:
        """Give a host a network card called lan0, and connect it."""
        port = f"port{host.number}"
        self._ip(f"link add {port} type veth peer name lan0 netns {host.pid}")
        self._ip(f"link set {port} master lan up")

    def switch_off(self) -> None:
        """And its cables with it."""
        end(self._unshare)

    def _ip(self, command: str) -> None:
        run_command("nsenter", "--target", str(self.pid), "--net", "ip", *command.split())


class Hosts(Product):
    """A dashboard on the first host and a worker on each; `stop` proves that nothing of them is left."""

    def __init__(self, count: int, folder: Path | None = None, env: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rankzero-hosts-", dir=folder))
        homes = [self.folder / f"host{number}" for number in range(count)]
        self.hosts = [Host(n, home, [h for h in homes if h != home]) for n, home in enumerate(homes)]
        for host in self.hosts:
            host.data.mkdir(parents=True)
        super().__init__(self.hosts[0].data, slots=2, env=env)
        self.port, self.url = PORT, f"http://{self.hosts[0].address}:{PORT}"
        self._started: list[Switch | Host] = []

    def __getitem__(self, number: int) -> Host:
        return self.hosts[number]

    def start(self) -> None:
        """Switch the hosts on, start what runs on them, and wait until every worker has registered."""
        self.boot()
        self.start_dashboard()
        for host in self.hosts:
            self.start_worker(host)
        self.wait_for_nodes()

    def boot(self) -> None:
        """The bare hosts, connected."""
        switch = Switch()
        self._started.append(switch)
        for host in self.hosts:
            self._started.append(host)
            host.boot(switch)

    def start_dashboard(self) -> None:
        """On the first host; waits until it answers."""
        self._ours("dashboard", "--host", "0.0.0.0", "--port", str(PORT), host=self.hosts[0])
        wait_for(self._answers, "the dashboard to answer", explain=self.tail)

    def start_worker(self, host: Host, env: dict[str, str] | None = None) -> None:
        """As one joins: the server's address, and a token from the environment. On the server's own host it goes
        by the loopback, as `rankzero up` has it."""
        url = f"http://127.0.0.1:{PORT}" if host is self.hosts[0] else self.url
        join = {"RANKZERO_TOKEN": (self.data / "join-token").read_text().strip()}
        options = ["--server", url, "--slots", str(self.slots)]
        self._ours("worker", *options, host=host, env=join | (env or {}))

    def wait_for_nodes(self) -> None:
        """Until every host is a node that is alive and ready to start."""
        names = sorted(host.name for host in self.hosts)
        wait_for(
            lambda: sorted(n["name"] for n in self.get("/api/nodes") if is_ready_to_start(n)) == names,
            "a node on each host",
            explain=self.tail,
        )

    def ensure(self) -> None:
        """Before a test: every host reachable, nothing running, dashboard and workers there."""
        self.free_all_ports()
        for host in self.hosts:
            host.mend()
        if not self.dashboards():
            self.start_dashboard()
        for host in self.hosts:
            if not self.workers(host):
                self.start_worker(host)
        self.wait_for_nodes()
        for run in self.get("/api/runs"):
            if run["ended_at"] is None:
                self.request("POST", f"/api/runs/{run['id']}/stop")
                self.wait_state(run["id"])

    def free_all_ports(self) -> None:
        """After a test that took some."""
        for host in self.hosts:
            host.free_ports()

    def dashboards(self) -> list[psutil.Process]:
        """The server's process, if there is one."""
        return self.hosts[0].find("cli.main", "dashboard")

    def workers(self, host: Host) -> list[psutil.Process]:
        """A host's worker, if there is one; on its way from one command line to the other it is met with both."""
        matching = host.find("cli.main", "worker") + host.find("worker")
        return list({process.pid: process for process in matching}.values())

    def clean_up(self) -> None:
        """Nothing remains: no process, no network, no file."""
        for each in reversed(self._started):
            if isinstance(each, Switch) or hasattr(each, "pid"):
                each.switch_off()
        wait_for(lambda: not self.processes(), "every process to be gone", explain=self._who_is_left)
        left_out = self.left_out()
        shutil.rmtree(self.folder)
        assert left_out == []

    def node_rank(self, run_id: str, host: Host) -> int:
        """Which of a run's nodes a host is."""
        (folder,) = (host.data / "runs" / run_id / "attempts").glob("1/node*")
        return int(folder.name.removeprefix("node"))

    def host_of(self, run_id: str, node_rank: int) -> Host:
        """The host that is this node of a run."""
        (matching,) = (h for h in self.hosts if (h.data / f"runs/{run_id}/attempts/1/node{node_rank}").exists())
        return matching

    def left_of(self, run_id: str) -> list[psutil.Process]:
        """The run's processes on all hosts."""
        return [process for host in self.hosts for process in host.of_run(run_id)]

    def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """As `Product` does it, from the server's host."""
        response: httpx2.Response = self.hosts[0].inside(super().request, method, path, **more)
        return response

    def tail(self) -> str:
        """The end of what was printed on each host."""
        return "".join(
            f"\n--- {host.name}\n{host.log.read_text(errors='replace')[-4000:]}"
            for host in self.hosts
            if host.log.exists()
        )

    def _ours(self, *argv: str, host: Host, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a program of ours in a session of its own, as systemd and `ssh … setsid` do."""
        program = ["setsid", sys.executable, "-P", "-m", "cli.main", *argv, "--data", str(host.data)]
        return host.start(*program, env=self.env | (env or {}))

    def _answers(self) -> bool:
        return (self.data / "token").exists() and self.request("GET", "/api/nodes").status_code == 200

    def _owns(self, process: psutil.Process) -> bool:
        """Also what carries no path of ours: its first process, and what holds the tests to it."""
        home = str(self.folder)
        return lives(process) and (
            any(home in word for word in safely(process.cmdline, []))
            or home in safely(process.environ, {}).get("RANKZERO_RUN_DIR", "")
        )
