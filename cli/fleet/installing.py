"""The steps that make one host a node, upgrade it, examine it, and take the worker off it again."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.fleet import scripts
from cli.fleet.host_list import Destination
from cli.fleet.node_files import NodeFiles, Target
from cli.fleet.progress import HostProgress
from cli.fleet.scripts import with_values
from cli.fleet.ssh import Answer, Connection, HostTrouble, telling_line
from worker.environments.uv import is_unreachable

INSTALL_LIMIT_S = 900.0
START_LIMIT_S = 120.0
ANY_PYTHON = ">=3.11"
LEAST_GLIBC = 17
"""Minor version of glibc 2 that uv and the wheels need."""
LEAST_FREE_MIB = 1024
SILENT_S = 30.0
"""A node that the dashboard has not answered for so long is started again."""


@dataclass(frozen=True)
class InstallationPlan:
    """What a command brings to every host, and what it knows of the dashboard's nodes."""

    files: NodeFiles
    urls: Sequence[str]
    """Addresses of the dashboard, in the order in which a node tries them."""
    nodes: Mapping[str, bool]
    """The ids of the dashboard's nodes, and whether each is alive."""
    names: Collection[str] = ()
    """The names of those that are alive."""
    token: str = field(default="", repr=False)
    """The join token; empty where only nodes are wanted."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The worker's, as JSON has them: `python`, `slots`, `run_as`."""
    certificates: str = ""
    """The certificates (PEM) that the nodes are to trust alone; empty for those that each trusts by itself."""


@dataclass(frozen=True)
class Look:
    """What there is on a host."""

    values: dict[str, Any]

    @property
    def home(self) -> str:
        """The folder of the installation."""
        return str(self.values["home"])

    @property
    def status(self) -> dict[str, Any]:
        """The installation that is there; empty without one."""
        status = self.values.get("status")
        return status if isinstance(status, dict) else {}

    @property
    def glibc(self) -> int:
        """The minor version of its glibc 2; 0 for another C library."""
        match = re.search(r"(?:glibc|GLIBC|GNU libc).*?\b2\.(\d+)", str(self.values.get("libc", "")))
        return int(match[1]) if match else 0


@dataclass(frozen=True)
class DoctorCheck:
    """One check of `rankzero nodes doctor`."""

    check: str
    ok: bool
    message: str


async def look(connection: Connection) -> Look:
    """Look at a host. Raises HostTrouble where no worker can be there."""
    answer = await connection.run(with_values(scripts.LOOK, home=connection.machine.folder))
    values = answer.values
    if trouble := values.get("trouble"):
        raise HostTrouble(trouble)
    if "looked" not in values:
        raise HostTrouble(f"its login shell runs no commands ({answer.last_error or 'it has printed no error'}).")
    facts = Look(values)
    if facts.glibc < LEAST_GLIBC:
        raise HostTrouble(
            f"its C library is {values.get('libc') or 'unknown'}; workers need glibc 2.{LEAST_GLIBC} or newer."
        )
    return facts


async def add(connection: Connection, plan: InstallationPlan, progress: HostProgress) -> str:
    """Make a host a node, or bring it up to date; returns a sentence. Raises HostTrouble."""
    progress.at("looking")
    facts = await look(connection)
    status = facts.status
    progress.node, progress.node_id = status.get("name") or facts.values["name"], status.get("node_id")
    if not (plan.token or status):
        raise HostTrouble("there is no installation of `rankzero nodes add` there to upgrade.")
    refuse_other_dashboard(status, plan)
    if not status.get("node_id") and progress.node in plan.names:
        raise HostTrouble(
            f"a node named {progress.node} is connected already, by another worker or from another folder: stop "
            "that one, or give the machine a host name of its own."
        )
    is_alive = plan.nodes.get(str(status.get("node_id")), False)
    is_member = bool(status.get("runs")) and is_alive and status["silent_s"] < SILENT_S
    is_newest = is_member and status.get("version") == plan.files.version
    changes = other_options(status, plan) if is_newest else []
    if is_newest and not changes:
        return f"has this version already, {status['service']}"
    if not is_newest:
        await install(connection, plan, facts, progress)
    progress.at("starting")
    answer = await start(connection, facts, plan, is_member)
    progress.node, progress.node_id = answer["name"], answer["node_id"]
    now = f"has now {' '.join(changes)}, " if changes else ""
    return f"{now}runs {answer['service']}"


def other_options(status: Mapping[str, Any], plan: InstallationPlan) -> list[str]:
    """Return the options, as they are typed, that the command names and the worker there does not have."""
    present = status.get("options") or {}
    changed = {name: value for name, value in plan.options.items() if value and value != present.get(name)}
    typed = {name: value if isinstance(value, list) else [value] for name, value in changed.items()}
    return [f"--{name.replace('_', '-')} {value}" for name, values in typed.items() for value in values]


def refuse_other_dashboard(status: dict[str, Any], plan: InstallationPlan) -> None:
    """Raises HostTrouble for a node that works for another dashboard, not for one that was removed from this one."""
    is_heard = status.get("runs") and status["silent_s"] < SILENT_S
    if is_heard and status.get("node_id") not in plan.nodes and status.get("server") not in plan.urls:
        raise HostTrouble(
            f"it is a node of another dashboard ({status.get('server')}): remove it there first "
            f"(`rankzero nodes remove {status.get('name')} --uninstall`), or name another folder with --folder."
        )


async def install(connection: Connection, plan: InstallationPlan, facts: Look, progress: HostProgress) -> None:
    """Put uv and this version of Rankzero there, completely or not at all. Raises HostTrouble."""
    home, machine = facts.home, str(facts.values["machine"])
    free_kb = str(facts.values.get("free_kb", ""))
    if free_kb.isdigit() and int(free_kb) < scripts.NEEDED_KB and facts.status.get("version") != plan.files.version:
        raise HostTrouble(
            f"{int(free_kb) // 1024} MiB are free in its folder {home}; an installation takes up to "
            f"{scripts.NEEDED_KB // 1024} MiB: make room, or name another folder with --folder."
        )
    packed = await plan.files.uv_for(machine)
    if facts.values.get("uv", "").split(" ")[1:2] != [plan.files.uv_version]:
        progress.at("bringing uv")
        answer = await connection.run(with_values(scripts.BRING_UV, home=home), packed, limit_s=INSTALL_LIMIT_S)
        if answer.code:
            raise HostTrouble(f"uv cannot be put there: {error_of(answer)}.")
    progress.at("installing")
    answer = await run_install(connection, plan, home)
    if answer.code == NO_PYTHON and reaches_nothing(answer):
        progress.at("bringing Python")
        await unpack(connection, home, "python", await plan.files.python_for(machine))
        answer = await run_install(connection, plan, home)
    if answer.code == NO_PACKAGES and reaches_nothing(answer):
        progress.at("bringing wheels")
        target = Target(machine, facts.glibc, answer.values["python"])
        try:
            wheels = await plan.files.wheels_for(target)
        except HostTrouble as trouble:
            raise HostTrouble(f"its packages cannot be installed there: {error_of(answer)}; {trouble}") from None
        await unpack(connection, home, "wheels", wheels)
        answer = await run_install(connection, plan, home, scripts.OFFLINE)
    if answer.code or "installed" not in answer.values:
        raise HostTrouble(f"{FAILURES.get(answer.code, 'it cannot be installed there')}: {error_of(answer)}.")


async def run_install(connection: Connection, plan: InstallationPlan, home: str, source: str = "") -> Answer:
    """Run the installation there, from its index or a folder of wheels."""
    files = plan.files
    values = {"home": home, "version": files.version, "requirement": files.requirement, "python": ANY_PYTHON}
    values["ask_proxy"] = scripts.ASK_PROXY if not source else "pass"
    script = with_values(scripts.INSTALL, **values, source=source)
    return await connection.run(script, files.archive, limit_s=INSTALL_LIMIT_S)


async def unpack(connection: Connection, home: str, folder: str, archive: Any) -> None:
    """Unpack an archive into a folder there. Raises HostTrouble."""
    script = with_values(scripts.UNPACK, home=home, folder=folder)
    answer = await connection.run(script, archive, limit_s=INSTALL_LIMIT_S)
    if answer.code:
        raise HostTrouble(f"{folder} cannot be put there: {error_of(answer)}.")


async def start(connection: Connection, facts: Look, plan: InstallationPlan, is_member: bool) -> dict[str, Any]:
    """Start the installed version there and wait until it has joined. Raises HostTrouble."""
    request = start_request(connection.host, facts, plan, is_member)
    script = with_values(scripts.START, home=facts.home, version=plan.files.version)
    return answered(await connection.run(script, json.dumps(request).encode(), limit_s=START_LIMIT_S))


def start_request(host: Destination, facts: Look, plan: InstallationPlan, is_member: bool) -> dict[str, Any]:
    """Return what the host's `worker.service.program` is asked for."""
    is_nameless = str(facts.values["name"]).startswith("localhost")  # then it has the name that was typed
    node_id = facts.status.get("node_id")
    return (
        {
            "version": plan.files.version,
            "urls": [*plan.urls],
            "options": dict(plan.options) | ({"name": host.name} if is_nameless else {}),
            "was_removed": bool(plan.token) and node_id is not None and node_id not in plan.nodes,
        }
        | ({"certificates": plan.certificates} if plan.certificates else {})
        | ({"token": plan.token} if plan.token and not is_member else {})
    )


async def uninstall(connection: Connection, progress: HostProgress) -> str:
    """Stop the worker there and remove what was installed; returns a sentence. Raises HostTrouble."""
    progress.at("looking")
    facts = await look(connection)
    if facts.status:
        progress.at("stopping")
        answered(await connection.run(with_values(scripts.STOP, home=facts.home), limit_s=START_LIMIT_S))
    progress.at("removing")  # also what an installation that did not end has left
    answer = await connection.run(with_values(scripts.UNINSTALL, home=facts.home), limit_s=START_LIMIT_S)
    if "removed" not in answer.values:
        raise HostTrouble(f"its folder {facts.home} cannot be removed: {error_of(answer)}.")
    if not facts.status:
        return f"nothing is installed in its folder {facts.home}"
    return f"its folder {facts.home} and what started the worker are gone"


async def examine(connection: Connection, version: str) -> list[DoctorCheck]:
    """Examine the installation on a host. Raises HostTrouble where no worker can be there."""
    facts = await look(connection)
    status, free = facts.status, str(facts.values.get("free_kb", ""))
    free_mib = int(free) // 1024 if free.isdigit() else 0
    checks = [
        DoctorCheck("ssh", True, f"connected to {facts.values['name']}"),
        DoctorCheck(
            "folder", free_mib >= LEAST_FREE_MIB, f"{facts.home}: {free_mib:,} MiB free ({facts.values.get('disk')})"
        ),
    ]
    if not status:
        return [*checks, DoctorCheck("installed", False, "nothing: `rankzero nodes add` installs a worker")]
    status |= answered(await connection.run(with_values(scripts.EXAMINE, home=facts.home)))
    is_newest, does_run = status["version"] == version, bool(status["runs"])
    advice = "" if is_newest else f"; this machine has {version}: `rankzero nodes upgrade` installs it"
    log = f"; its log ends with: {status['log'][-1]}" if status["log"] else ""
    stopped = f"it does not run: `rankzero nodes add {connection.host}` starts it{log}"
    away = status["silent_because"]
    return [
        *checks,
        DoctorCheck("installed", is_newest, f"{status['version']}{advice}"),
        DoctorCheck("worker", does_run, f"runs {status['service']}" if does_run else stopped),
        DoctorCheck("dashboard", not away, f"{status['server']} " + (f"is silent: {away}" if away else "answers it")),
    ]


def answered(answer: Answer) -> dict[str, Any]:
    """Return the JSON that a program of ours answered. Raises HostTrouble."""
    document = answer.values.get("answer")
    if not isinstance(document, dict):
        raise HostTrouble(f"its installation does not answer: {error_of(answer)}.")
    if trouble := document.get("trouble"):
        raise HostTrouble(trouble)
    return document


NO_PYTHON, NO_PACKAGES = 11, 12
FAILURES = {
    NO_PYTHON: f"there is no Python {ANY_PYTHON} there, and none can be downloaded",
    NO_PACKAGES: "the worker's packages cannot be installed there",
    13: "the installed worker does not start there",
}
_NOT_IN_INDEX = re.compile(r"(?i)failed to (fetch|download)|its proxy|not found in the package registry")


def reaches_nothing(answer: Answer) -> bool:
    """Whether an installation failed because an index could not be reached, or does not have the packages."""
    return is_unreachable(answer.errors) or _NOT_IN_INDEX.search(answer.errors) is not None


def error_of(answer: Answer) -> str:
    """Return the most telling line that a script printed to its standard error."""
    return telling_line(answer.errors) or f"exit code {answer.code}"
