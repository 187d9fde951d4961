"""A real Slurm cluster for tests: munged, slurmctld and two slurmds on free ports, in a folder of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.end_to_end.product import ENDED, WAIT_S, Product, free_port, safely, wait_for
from worker.slurm.commands import is_away

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CORES = 4
"""Of each node, as Slurm believes."""
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=20
MessageTimeout=100
TCPTimeout=60
BatchStartTimeout=120
GresTypes=gpu
SchedulerParameters=sched_interval=1,sched_min_interval=100000,bf_interval=1
{nodes}
PartitionName=cpu Nodes=n0,n1 Default=YES MaxTime=60 State=UP
PartitionName=short Nodes=n1 MaxTime=5 State=UP
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory=2000 Gres=gpu:{gpus}"


def why_not() -> str | None:
    """Why no cluster can be made here; None where it can."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"Debian's slurmctld, slurmd, slurm-client and munge are not installed ({missing[0]})"
    return "slurmd has to be started by root" if os.getuid() != 0 else None


class Slurm:
    """Two nodes, n0 and n1, on this machine; `clean_up` ends every process of them."""

    def __init__(self, folder: Path, gpus: int = 0) -> None:
        self.folder = folder
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._gpus = gpus
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start it and wait until both nodes are idle."""
        self._configure()
        socket = self.folder / "munge.socket"
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        places = {"socket": socket, "key-file": key, "pid-file": self.folder / "munge.pid"}
        places |= {"log-file": self.folder / "munge.log", "seed-file": self.folder / "munge.seed"}
        self._start("munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in places.items()))
        wait_for(socket.exists, "munged")
        self._start("slurmctld", "-D", "-i")
        for name in ("n0", "n1"):
            self._start("slurmd", "-D", "-N", name)
        wait_for(
            lambda: self.ask("sinfo", "-h", "-N", "-p", "cpu", "-o", "%T").split() == ["idle"] * 2,
            "nodes",
        )

    def ask(self, *argv: str) -> str:
        """What a command of Slurm prints; nothing where it fails, but a busy controller is asked again."""
        done: subprocess.CompletedProcess[str] = wait_for(lambda: self._answer(argv), f"an answer to {argv}")
        return done.stdout if done.returncode == 0 else ""

    def _answer(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
        done = subprocess.run(argv, env=os.environ | self.env, capture_output=True, text=True, check=False)
        return None if done.returncode and is_away(done.stderr) else done

    def fill(self) -> str:
        """Take all cores of both nodes; the job's id, for `scancel`."""
        argv = [
            "sbatch",
            "--parsable",
            "--nodes=2",
            "--exclusive",
            "--job-name=somebody",
            "--output=/dev/null",
        ]
        job = self.ask(*argv, "--wrap=sleep 1000").strip()
        wait_for(lambda: self.state(job) == "RUNNING", "the cluster to be full")
        return job

    def state(self, job: str) -> str:
        """RUNNING, PENDING, …"""
        return self.ask("squeue", "-h", "--states=all", "-j", job, "-o", "%T").strip()

    def jobs_of(self, run_id: str) -> list[str]:
        """Ids of all jobs there ever were for a run."""
        listed = self.ask("squeue", "-h", "--states=all", "-o", "%i %j").split("\n")
        return sorted(line.split()[0] for line in listed if f"rankzero-{run_id}-" in line)

    def is_quiet(self) -> bool:
        """Is no job left?"""
        return not self.ask("squeue", "-h").strip()

    def clean_up(self) -> None:
        """End every job, then the daemons with all that they started."""
        try:
            self.ask("scancel", f"--user={os.getuid()}")
            wait_for(self.is_quiet, "every job to end")
        finally:
            self._end_daemons()

    def _end_daemons(self) -> None:
        for program in reversed(self._started):
            left = [*psutil.Process(program.pid).children(recursive=True)] if program.poll() is None else []
            program.terminate()
            try:
                program.wait(60)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait(WAIT_S)
            for process in left:
                safely(process.kill, None)

    def logs(self) -> str:
        """The ends of the daemons' logs."""
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("slurm*.log"))

    def _configure(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        host = os.uname().nodename
        for name in ("state", "spool-n0", "spool-n1"):
            (self.folder / name).mkdir()
        node = {"host": host, "cores": CORES, "gpus": self._gpus}
        nodes = "\n".join(NODE.format(name=name, port=free_port(), **node) for name in ("n0", "n1"))
        if not self._gpus:
            nodes = nodes.replace(" Gres=gpu:0", "")
        text = CONFIGURATION.format(host=host, port=free_port(), folder=self.folder, nodes=nodes)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(self._fake_gpus())

    def _fake_gpus(self) -> str:
        """Character devices that nobody opens: enough for Slurm to give them out."""
        lines = []
        for index in range(self._gpus):
            device = self.folder / f"fakegpu{index:02}"
            os.mknod(device, 0o20666, os.makedev(1, 3))
            lines.append(f"Name=gpu File={device}\n")
        return "".join(lines)

    def _start(self, *argv: str) -> None:
        with (self.folder / f"{argv[0]}.out").open("ab") as output:
            started = subprocess.Popen(
                argv, env=os.environ | self.env, stdout=output, stderr=output, start_new_session=True
            )
        self._started.append(started)


class SlurmProduct(Product):
    """A dashboard without a worker, and a gateway to a cluster; all they keep is below `data`."""

    def __init__(self, data: Path, slurm: Slurm) -> None:
        super().__init__(data, has_worker=False)
        self.slurm = slurm
        self.gateway: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start both, and wait until the gateway has registered."""
        super().start()
        self.start_gateway()

    def start_gateway(self) -> None:
        """As a user does on a login node."""
        argv = [
            sys.executable,
            "-P",
            "-m",
            "cli.main",
            "gateway",
            "--server",
            self.url,
            "--name",
            "login",
        ]
        argv += ["--data", str(self.data / "gateway"), "--poll", "0.5"]
        token = {"RANKZERO_TOKEN": (self.data / "join-token").read_text().strip()}
        with self.log.open("ab") as log:
            self.gateway = subprocess.Popen(argv, stdout=log, stderr=log, env=self.env | self.slurm.env | token)
        wait_for(
            lambda: any(n["name"] == "login" and n["state"] == "alive" for n in self.get("/api/nodes")),
            "the gateway",
            explain=self.tail,
        )

    def end_gateway(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; its jobs stay."""
        assert self.gateway is not None
        self.gateway.send_signal(number)
        return self.gateway.wait(WAIT_S)

    def stop(self, timeout_s: float = WAIT_S) -> int:
        """End every run, then the gateway, then the dashboard; proof that nothing is left."""
        for run in self.get("/api/runs"):
            if run["state"] not in ENDED:
                self.request("POST", f"/api/runs/{run['id']}/stop")
        wait_for(self.slurm.is_quiet, "every job to end", explain=self.slurm.logs)
        if self.gateway is not None and self.gateway.poll() is None:
            assert self.end_gateway() == 0
        return super().stop(timeout_s)
