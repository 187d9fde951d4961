"""Remember what happened on devices and nodes, and put those in quarantine that cannot be trusted."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.lookups import add_history, is_ours
from db.models import Attempt, IncidentRow, Node, QuarantineRow, Run, Task
from db.people.visibility import is_private
from domain.health.quarantine import (
    CLEARING,
    NODE,
    REMEMBERED_S,
    Incident,
    IncidentKind,
    blamed,
    may_be_hardware,
    quarantines,
    silence_counts,
)
from domain.health.xids import in_words, is_hardware
from domain.liveness import SILENT_AFTER_S
from domain.messages import DeviceFault, State
from domain.performance.slow_ranks import SlowRank
from domain.performance.slow_ranks import sentence as slow_sentence
from domain.text.formats import plural
from domain.views import PreflightCell
from domain.watching.guests import is_guest

SLURM = "slurm/"
MINUTE_S, HOUR_S = 60.0, 3600.0
MOST_REMEMBERED = 200
"""Incidents of one machine."""
AVOIDED_S = 86_400.0
"""For so long the attempts of a run avoid a device on which one of them failed."""
JUST_SILENT_S = 3600.0
"""Nodes that are silent for longer have been switched off."""
log = logging.getLogger("rankzero")


def machine_of(node: Node) -> str:
    """The key of a node's memory; a node of Slurm's registers again for every job, under its name."""
    return f"{SLURM}{node.name}" if node.pool.startswith("slurm:") else node.id


@dataclass(frozen=True)
class OfAttempt:
    """The attempt that an incident belongs to."""

    run_id: str | None = None
    attempt: int | None = None
    avoid: bool = False
    """Whether the run's next attempt better avoids the device."""


NOWHERE = OfAttempt()


def remember(
    session: Session, node: Node, incident: Incident, key: str, now: float, origin: OfAttempt = NOWHERE
) -> bool:
    """Store an incident unless its key is known, and judge the node; False when it was known, or is of a guest."""
    if is_guest(node.pool):
        return False
    machine = machine_of(node)
    same_incident = select(IncidentRow.id).where(IncidentRow.machine == machine, IncidentRow.key == key)
    if session.scalar(same_incident) is not None:
        return False
    session.add(
        IncidentRow(
            machine=machine, key=key, device=incident.device, kind=incident.kind, at=incident.at, text=incident.text,
            number=incident.number, began_at=incident.began_at, is_strike=incident.is_strike, avoid=origin.avoid,
            run_id=origin.run_id, attempt=origin.attempt,
        )
    )  # fmt: skip
    session.flush()
    _judge(session, node, machine, incident, now)
    _forget_oldest(session, machine)
    return True


def attempt_failed(session: Session, attempt: Attempt, first: Task, now: float) -> None:
    """Remember a failed attempt of the node, or the GPU, on which its first rank failed."""
    error = attempt.error or {}
    at_fault = blamed(attempt.reason, error)
    if error.get("rank") is None and at_fault is None:
        return
    node = session.get_one(Node, first.node_id)
    device = NODE if at_fault == "node" else _device(session, attempt, first, error.get("rank"))
    run = session.get_one(Run, attempt.run_id)
    text = _in_words(session, run, attempt, attempt.message or attempt.reason)
    is_strike = (
        at_fault is not None and not _is_excused(node) and not (at_fault == "node" and _is_alone(session, node, now))
    )
    incident = Incident(IncidentKind.FAILED, now, text, device, attempt.placed_at, is_strike=is_strike)
    origin = OfAttempt(attempt.run_id, attempt.number, may_be_hardware(attempt.reason, error))
    remember(session, node, incident, f"attempt/{attempt.fence}", now, origin)


def contact_lost(session: Session, attempt: Attempt, node_ranks: Collection[int], now: float) -> None:
    """Remember that an attempt failed because nodes were silent, unless most nodes are."""
    last_seen = select(Node.last_seen).where(Node.removed_at.is_(None), Node.last_seen > now - JUST_SILENT_S, is_ours())
    of_attempt = select(Node).join(Task, Task.node_id == Node.id).where(Task.fence == attempt.fence)
    lost_nodes = session.scalars(of_attempt.where(Task.node_rank.in_(node_ranks))).all()
    silent_after_s = min([SILENT_AFTER_S, *(now - node.last_seen for node in lost_nodes)])
    silences_s = [now - seen_at for seen_at in session.scalars(last_seen)]
    silent = sum(silence_s >= silent_after_s for silence_s in silences_s)
    counts = silence_counts(silent, len(silences_s) - silent)
    run = session.get_one(Run, attempt.run_id)
    for node in lost_nodes:
        text = _in_words(session, run, attempt, f"no contact for {now - node.last_seen:.0f} s")
        is_strike = counts and not _is_excused(node)
        incident = Incident(IncidentKind.LOST, now, text, began_at=attempt.placed_at, is_strike=is_strike)
        origin = OfAttempt(attempt.run_id, attempt.number, avoid=True)
        remember(session, node, incident, f"attempt/{attempt.fence}", now, origin)


def _in_words(session: Session, run: Run, attempt: Attempt, why: object) -> str:
    """The incident of an attempt, as everybody who sees the node may read it."""
    if is_private(session, run):
        return f"an attempt of a private run: {attempt.reason or 'failed'}"
    return f"{run.name}, attempt {attempt.number}: {why}"


def _is_excused(node: Node) -> bool:
    """Whether the node is being taken away: it drains, or its worker was stopped and said so."""
    return node.drain_requested_at is not None or bool((node.load or {}).get("leaving"))


def _is_alone(session: Session, node: Node, now: float) -> bool:
    """Whether no other node was heard lately: to leave out the only one would leave nothing."""
    others = select(Node.id).where(Node.id != node.id, Node.removed_at.is_(None), is_ours())
    others = others.where(Node.last_seen > now - JUST_SILENT_S)
    return session.scalars(others.limit(1)).first() is None


def faults_reported(session: Session, node_id: str, faults: Sequence[DeviceFault], now: float) -> None:
    """Remember faults of a node's devices; one that is repeated, once an hour, and a broken device once a minute."""
    node = session.get_one(Node, node_id)
    for fault in faults:
        kind = IncidentKind(fault.kind)
        is_broken = kind is IncidentKind.XID and fault.number is not None and is_hardware(fault.number)
        when = int(fault.at // (MINUTE_S if is_broken else HOUR_S))
        key = f"{kind}/{fault.device}/{'' if kind is IncidentKind.MEMORY else fault.number}/{when}"
        incident = Incident(kind, now, _words(kind, fault), fault.device, number=fault.number)
        remember(session, node, incident, key, now)


def _words(kind: IncidentKind, fault: DeviceFault) -> str:
    if kind is IncidentKind.XID and fault.number is not None:
        return in_words(fault.number)
    return fault.text or plural(fault.number or 1, "uncorrected memory error")


def preflight_failed(session: Session, attempt: Attempt, cells: Sequence[PreflightCell], now: float) -> None:
    """Remember the checks that kept an attempt from starting, of the nodes that failed them."""
    failed: dict[str, list[str]] = {}
    for cell in cells:
        if cell.state == "failed":
            failed.setdefault(cell.node, []).append(f"{cell.row}: {cell.value}")
    of_attempt = select(Node).join(Task, Task.node_id == Node.id).where(Task.fence == attempt.fence)
    for node in session.scalars(of_attempt.where(Node.name.in_(failed))).all():
        incident = Incident(IncidentKind.PREFLIGHT, now, "; ".join(failed[node.name]), began_at=attempt.placed_at)
        remember(session, node, incident, f"preflight/{attempt.fence}", now, OfAttempt(attempt.run_id, attempt.number))


def ranks_were_slow(store: Store, fence: int, slow: Sequence[SlowRank], now: float) -> None:
    """Remember the ranks that the others of an attempt wait for, each once."""
    tasks_and_nodes = select(Task, Node).join(Node, Node.id == Task.node_id).where(Task.fence == fence)
    with store.write() as session:
        attempt = session.get(Attempt, fence)
        if attempt is None:
            return
        by_name = {node.name: (task, node) for task, node in session.execute(tasks_and_nodes).all()}
        for one in slow:
            if one.node in by_name:
                task, node = by_name[one.node]
                device = _device(session, attempt, task, one.rank)
                incident = Incident(IncidentKind.SLOW, now, slow_sentence(one), device, attempt.placed_at)
                origin = OfAttempt(attempt.run_id, attempt.number)
                remember(session, node, incident, f"slow/{fence}/{one.rank}", now, origin)


def _device(session: Session, attempt: Attempt, task: Task, rank: int | None) -> str:
    """The GPU of a rank; the entire node for a CPU slot, and where one rank has several GPUs."""
    if task.device_kind != "cuda" or rank is None:
        return NODE
    if len(task.devices) == 1:
        return str(task.devices[0])
    position = rank - task.node_rank * len(task.devices)
    strategy = session.get_one(Run, attempt.run_id).spec.get("strategy")
    is_one_each = strategy not in ("dp", "single") and 0 <= position < len(task.devices)
    return str(task.devices[position]) if is_one_each else NODE


def _judge(session: Session, node: Node, machine: str, newest: Incident, now: float) -> None:
    """Begin the quarantines that follow from the node's memory; one that cleared it ends those that no longer do."""
    rows = session.scalars(select(IncidentRow).where(IncidentRow.machine == machine).order_by(IncidentRow.id)).all()
    due_quarantines = quarantines([incident_of(row) for row in rows], _trusted(session, node, now), now)
    of_node = QuarantineRow.machine == machine
    if newest.kind in CLEARING:
        cleared = of_node if newest.device == NODE else of_node & QuarantineRow.device.in_([newest.device, NODE])
        session.execute(delete(QuarantineRow).where(cleared, QuarantineRow.device.not_in(due_quarantines.keys())))
    begun = {row.device: row for row in session.scalars(select(QuarantineRow).where(of_node))}
    for device, quarantine in due_quarantines.items():
        if device in begun:
            begun[device].why = quarantine.why
        else:
            session.add(QuarantineRow(machine=machine, device=device, since=now, why=quarantine.why))
            log.warning("%s is in quarantine: %s", device or f"node {node.name}", quarantine.why)
            _tell_runs(session, node, device, quarantine.why, now)


def incident_of(row: IncidentRow) -> Incident:
    """The incident that a row stores."""
    return Incident(IncidentKind(row.kind), row.at, row.text, row.device, row.began_at, row.number, row.is_strike)


def _trusted(session: Session, node: Node, now: float) -> dict[str, float]:
    """When an attempt last succeeded on the node, and on each of its devices."""
    same = Node.id == node.id
    if node.pool:
        same = (Node.name == node.name) & Node.pool.startswith("slurm:")
    succeeded = (
        select(Attempt.ended_at, Task.devices)
        .join(Task, Task.fence == Attempt.fence)
        .join(Node, Node.id == Task.node_id)
        .where(same, Attempt.state == State.SUCCEEDED, Attempt.ended_at > now - REMEMBERED_S)
        .order_by(Attempt.ended_at)
    )
    trusted: dict[str, float] = {}
    for ended_at, devices in session.execute(succeeded):
        trusted |= dict.fromkeys([NODE, *devices], ended_at)
    return trusted


def _tell_runs(session: Session, node: Node, device: str, why: str, now: float) -> None:
    """Add a line to the history of each run that has the device."""
    subject = f"GPU {device} of {node.name}" if device else node.name
    live = select(Task.devices, Attempt.run_id, Attempt.number).join(Attempt, Attempt.fence == Task.fence)
    live = live.where(Task.node_id == node.id, or_(Attempt.ended_at.is_(None), Attempt.ended_at >= now))
    for devices, run_id, number in session.execute(live).all():
        if device in (NODE, *devices):
            add_history(session, run_id, number, now, f"{subject} is in quarantine: {why}")


def _forget_oldest(session: Session, machine: str) -> None:
    of_machine = IncidentRow.machine == machine
    if (session.scalar(select(func.count()).where(of_machine)) or 0) > MOST_REMEMBERED:
        newest = select(IncidentRow.id).where(of_machine).order_by(IncidentRow.id.desc()).limit(MOST_REMEMBERED)
        session.execute(delete(IncidentRow).where(of_machine, IncidentRow.id.not_in(newest)))


# What placement and pages read of it.


def in_quarantine(session: Session) -> dict[str, dict[str, QuarantineRow]]:
    """The devices in quarantine by machine and id; NODE for an entire node."""
    by_machine: dict[str, dict[str, QuarantineRow]] = {}
    for row in session.scalars(select(QuarantineRow)):
        by_machine.setdefault(row.machine, {})[row.device] = row
    return by_machine


def slurm_nodes_left_out(session: Session) -> dict[str, str]:
    """Why nodes of Slurm's, by name, are to get no new jobs: they, or devices of them, are in quarantine."""
    rows = session.scalars(select(QuarantineRow).where(QuarantineRow.machine.startswith(SLURM)))
    return {row.machine.removeprefix(SLURM): row.why for row in rows}


def avoided(session: Session, runs: Sequence[tuple[str, int]], now: float) -> dict[str, frozenset[tuple[str, str]]]:
    """The (node id, device id) that the next attempts of runs better avoid, by run; `runs`: (id, its attempt)."""
    number_of = dict(runs)
    query = select(IncidentRow.run_id, IncidentRow.attempt, IncidentRow.machine, IncidentRow.device)
    query = query.where(IncidentRow.run_id.in_(number_of), IncidentRow.avoid, IncidentRow.at > now - AVOIDED_S)
    devices_by_run: dict[str, set[tuple[str, str]]] = {}
    for run_id, attempt, machine, device in session.execute(query) if number_of else ():
        if run_id is not None and attempt is not None and attempt < number_of[run_id]:
            devices_by_run.setdefault(run_id, set()).add((machine, device))
    return {run_id: frozenset(devices) for run_id, devices in devices_by_run.items()}
