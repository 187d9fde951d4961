"""The place in a run that the server gives to a watched command, and the files that make it an attempt of a worker."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from domain.assignments import Assignment
from domain.choices import RUN_ID
from domain.masking.masking import masked_args
from domain.messages import Device, NodeFacts
from domain.protocol import PROTOCOL
from domain.spec import RunSpec
from domain.watching.messages import WatchAnswer, WatchedCommand, WatchRequest
from worker.node.attempt_files import ASSIGNMENT_FILE
from worker.node.state_files import REPORTED_FILE, read_object, write_whole
from worker.watched.existing_files import remember_files_before
from worker.watched.folder import ATTEMPT, REGISTRATION_FILE, Watched

NODE_FILE = "node/node.json"
LONGEST_ARGUMENT = 4096
GIVEN = (
    "watch_id", "run_id", "key", "is_lasting", "process", "processes", "ranks_here", "world_size", "name", "project",
    "tags", "python", "look_only", "stop_grace_s", "started_at",
)  # fmt: skip
"""The fields of a question that are the front's."""
LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID")
"""The variables in which launchers tell a process its number among those of its machine."""


class RegisteredPlace(BaseModel):
    """The place of a watched command, as `registration.json` keeps it."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    assignment: Assignment
    node_id: str
    node_token: str
    store: str
    url: str = ""
    """The path of the run's page."""


def request_of(watched: Watched, facts: NodeFacts) -> WatchRequest:
    """Return the question for a place. Raises ValidationError."""
    command = WatchedCommand(
        argv=[argument[:LONGEST_ARGUMENT] for argument in masked_args(watched.argv)],
        cwd=watched.cwd,
        host=watched.host,
        account=watched.account,
        pid=watched.pid,
        scheduler=watched.scheduler,
    )
    fields = {name: getattr(watched, name) for name in GIVEN}
    return WatchRequest.model_validate(fields | {"protocol": PROTOCOL, "command": command, "facts": facts})


def place_in(answer: WatchAnswer) -> RegisteredPlace:
    """Return the place of an answer that gives one. Raises ValueError where it has none that can be used."""
    assignment = answer.assignment
    if assignment is None or not RUN_ID.fullmatch(assignment.run_id):
        raise ValueError("the server's answer has no place in it")
    names = ("node_id", "node_token", "store", "url")
    return RegisteredPlace(
        run_id=assignment.run_id, assignment=assignment, **{name: getattr(answer, name) for name in names}
    )


def provisional(watched: Watched, devices: Sequence[Device]) -> Assignment:
    """Return the assignment by which a companion works before the server has answered. Raises ValidationError."""
    nodes = watched.processes or 1
    ranks = watched.ranks_here or max(1, (watched.world_size or 1) // nodes)
    spec = RunSpec(
        target=watched.cwd, workdir=watched.cwd, launcher="python", stop_grace_s=watched.stop_grace_s,
        nodes=nodes, gpus_per_node=ranks,
    )  # fmt: skip
    return Assignment(
        run_id=watched.run_id, attempt=1, fence=0, node_rank=watched.process or 0, action="run", spec=spec,
        devices=[device.id for device in devices], device_kind=devices[0].kind, is_known=True,
    )  # fmt: skip


def read_place(folder: Path) -> RegisteredPlace | None:
    """Return the place that an earlier companion took; None where there is none."""
    try:
        return RegisteredPlace.model_validate_json((folder / REGISTRATION_FILE).read_bytes())
    except (OSError, ValueError):
        return None


def in_own_folder(assignment: Assignment, watched: Watched) -> Assignment:
    """Return an assignment for the folder of this command: the run's is that of whichever process came first."""
    return assignment.model_copy(update={"spec": assignment.spec.model_copy(update={"workdir": watched.cwd})})


def take(folder: Path, place: RegisteredPlace, watched: Watched) -> None:
    """Write down a place, the registration last; `assign` follows once nobody works without it. Raises OSError."""
    assignment = place.assignment
    earlier = read_place(folder)
    if earlier is not None and not earlier.assignment.is_of(assignment):
        _tell_all_again(folder, earlier)
    node = read_object(folder / NODE_FILE)
    known = node if node.get("store") == place.store else {}
    node = known | {"node_id": place.node_id, "token": place.node_token, "name": watched.host, "store": place.store}
    write_whole(folder / NODE_FILE, json.dumps(node))
    write_whole(folder / ATTEMPT / "spec.json", in_own_folder(assignment, watched).spec.model_dump_json())
    write_whole(folder / REGISTRATION_FILE, place.model_dump_json())


def assign(folder: Path, assignment: Assignment, watched: Watched) -> None:
    """Make the command's directory that of this attempt. Raises OSError."""
    remember_files_before(folder / ATTEMPT, Path(watched.cwd), watched.started_at)
    path = folder / ATTEMPT / ASSIGNMENT_FILE
    write_whole(path, in_own_folder(assignment, watched).model_dump_json())
    os.utime(path, (watched.started_at, watched.started_at))  # it was never queued
    link = folder / f"runs/{assignment.run_id}/attempts/{assignment.attempt}/node{assignment.node_rank}"
    if not (link.is_symlink() and link.readlink() == folder / ATTEMPT):
        shutil.rmtree(folder / "runs", ignore_errors=True)
        link.parent.mkdir(parents=True, mode=0o700)
        link.symlink_to(folder / ATTEMPT)


def _tell_all_again(folder: Path, earlier: RegisteredPlace) -> None:
    """Let the next reports go to another attempt as if nothing had been reported: it has nothing of this one."""
    record = {"state": "", "store": earlier.store}
    write_whole(folder / ATTEMPT / REPORTED_FILE, json.dumps(record))


def own_devices(devices: Sequence[Device], watched: Watched, env: Mapping[str, str]) -> list[Device]:
    """Return the devices that a command may use: of the GPUs that each process of its machine sees, that of its local
    rank, as scripts choose it, where it is one rank of several."""
    if devices and devices[0].kind != "cuda":
        return [*devices][: max(1, watched.ranks_here or 1)]
    local = next((env[name] for name in LOCAL_RANKS if re.fullmatch(r"\d+", env.get(name, ""))), None)
    is_one_of_several = watched.ranks_here == 1 and watched.processes != 1 and len(devices) > 1
    if local is None or not is_one_of_several or int(local) >= len(devices):
        return [*devices]
    return [devices[int(local)]]
