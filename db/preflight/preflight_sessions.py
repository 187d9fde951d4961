"""Preflights run in stages: the requests to nodes, their answers, and the progress of the check."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from sqlalchemy import bindparam, delete, select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.lookups import is_ours, node_named
from db.models import Attempt, Check, CheckedNode, Node, PairPass, Run, Task
from db.people import audit
from domain.assignments import CheckPair, CheckPeer, DesiredCheck
from domain.liveness import SILENT_AFTER_S, is_silent
from domain.messages import LIVE_STATES, CheckAnswer, NodeCheck
from domain.people.audit import AuditAction
from domain.preflight import Link, NodeAnswer, Pair, judge, judge_links, library_versions, pairs, red, rounds
from domain.requests.errors import InvalidRequest
from domain.text.formats import plural
from domain.views import CheckView, PreflightCell


def ask(store: Store, nodes: Sequence[str] | None, bandwidth: bool, now: float) -> int:
    """Request a preflight of these nodes (names or ids; None: all that are alive); return its id.

    Raises NoSuchNode, InvalidRequest."""
    with store.write() as session:
        selected = _nodes_by_name(session, nodes) if nodes is not None else _alive(session, now)
        if not selected:
            raise InvalidRequest("nodes", "nodes: no node is online, so there is nothing to check.")
        _forget_old(session)
        names = [node.name for node in selected]
        audit.record(session, AuditAction.PREFLIGHT, plural(len(names), "node"), more={"nodes": names[:MOST_NAMED]})
        return _open(session, [(node, []) for node in selected], now, bandwidth=bandwidth).id


MOST_NAMED = 50
"""Number of nodes that the audit log names."""
MOST_REMEMBERED = 20
"""Number of preflights on demand that are stored."""
ALL_PAIRS_UP_TO = 16
"""With more nodes only the neighbours in a ring are measured, because each pair takes seconds."""
PAIRS_BEFORE_A_RUN = 4
"""The limit before a run, which waits for the result: three rounds of seconds at most."""
ANSWER_LIMIT_S = 40.0
"""Time limit for a node that is alive; an interpreter on a network disk may take long to answer."""
SECOND_CHANCE_S = 3.0
"""Time limit for a node that was already silent when the preflight began."""
REACH_LIMIT_S = 20.0
MEASURE_LIMIT_S = 180.0
"""Slightly longer than the nodes' own limit; importing torch from a network disk may take a minute."""
_OPEN = select(Check.id).where(Check.ended_at.is_(None)).limit(1)
"""Built once: it runs every second."""
FIRST_ROUND = 2
"""The stage of the first round of all-reduces."""


def open_for_attempt(session: Session, attempt: Attempt, now: float) -> None:
    """Request the bandwidth measurement that an attempt waits for, with the Python that trains."""
    python = session.get_one(Run, attempt.run_id).spec.get("python")
    query = (
        select(Task, Node)
        .join(Node, Node.id == Task.node_id)
        .where(Task.fence == attempt.fence)
        .order_by(Task.node_rank)
    )
    devices_by_node = [
        (node, task.devices if task.device_kind == "cuda" else []) for task, node in session.execute(query)
    ]
    _open(session, devices_by_node, now, bandwidth=True, fence=attempt.fence, python=python)


# Built once, which takes longer than running it: every node asks again and again.
_OPEN_OF_NODE = (
    select(Check, Run.by)
    .join(CheckedNode, CheckedNode.check_id == Check.id)
    .outerjoin(Attempt, Attempt.fence == Check.fence)
    .outerjoin(Run, Run.id == Attempt.run_id)
    .where(CheckedNode.node_id == bindparam("node_id"), Check.ended_at.is_(None))
    .order_by(Check.id)
)


def check_requests(store: Store, node_id: str) -> list[DesiredCheck]:
    """The open preflights of a node, each at its current stage, answered or not; always the complete list."""
    with store.read() as session:
        checks = session.execute(_OPEN_OF_NODE, {"node_id": node_id}).all()
        return [_check_request(check, _checked_nodes(session, check), node_id, by) for check, by in checks]


def node_ids(store: Store, check_id: int) -> list[str]:
    """The nodes that take part in a preflight."""
    with store.read() as session:
        return list(session.scalars(select(CheckedNode.node_id).where(CheckedNode.check_id == check_id)))


def answered(session: Session, node_id: str, check_id: int, answer: CheckAnswer, now: float) -> Check | None:
    """Store a node's answer; return the check, or None when the answer is late or repeated and changes nothing."""
    check = session.get(Check, check_id)
    if check is None or check.ended_at is not None or answer.stage != check.stage:
        return None
    nodes = _checked_nodes(session, check)
    node = next((candidate for candidate in nodes if candidate.node_id == node_id), None)
    if node is None or node.answered_stage >= answer.stage:
        return None
    node.answered_stage = answer.stage
    _store_answer(check, node, answer)
    _advance(session, check, nodes, now)
    return check


def overdue(session: Session, now: float) -> list[Check]:
    """Advance checks without the nodes that are too late; return the checks that advanced."""
    moved = []
    for check in session.scalars(select(Check).where(Check.ended_at.is_(None)).order_by(Check.id)):
        before = (check.stage, check.ended_at)
        _advance(session, check, _checked_nodes(session, check), now)
        if (check.stage, check.ended_at) != before:
            moved.append(check)
    return moved


def has_open(session: Session) -> bool:
    """Whether any preflight is open."""
    return session.scalar(_OPEN) is not None


def of_attempt(session: Session, fence: int) -> Check | None:
    """The bandwidth measurement of an attempt; None when it has none."""
    return session.scalars(select(Check).where(Check.fence == fence)).first()


def on_demand(store: Store) -> list[int]:
    """Ids of the preflights on demand, newest first."""
    query = select(Check.id).where(Check.fence.is_(None)).order_by(Check.id.desc()).limit(MOST_REMEMBERED)
    with store.read() as session:
        return list(session.scalars(query))


def views(store: Store, check_id: int | None = None) -> list[CheckView]:
    """The preflights on demand, newest first, or the one with this id."""
    query = select(Check).order_by(Check.id.desc()).limit(MOST_REMEMBERED)
    query = query.where(Check.fence.is_(None) if check_id is None else Check.id == check_id)
    with store.read() as session:
        return [_view(session, check) for check in session.scalars(query)]


def red_cells(session: Session, check: Check) -> list[PreflightCell]:
    """The failed cells of a preflight, without the bandwidth measurement."""
    return red(judge(_answers(_checked_nodes(session, check)), for_run=False))


def links(session: Session, check: Check) -> list[Link]:
    """The measured links, with the names of the nodes."""
    names = {node.node_rank: node.node for node in _checked_nodes(session, check)}
    return [Link(names[a], names[b], speed, problem) for a, b, speed, problem in check.measured]


def bandwidth(nodes: int, measured: Iterable[Sequence[float | None]]) -> list[list[float | None]]:
    """A symmetric matrix of bytes per second; None where nothing was measured."""
    matrix: list[list[float | None]] = [[None] * nodes for _ in range(nodes)]
    for a, b, speed, _ in measured:
        matrix[int(a or 0)][int(b or 0)] = matrix[int(b or 0)][int(a or 0)] = speed
    return matrix


def _nodes_by_name(session: Session, names: Sequence[str]) -> list[Node]:
    nodes = [node_named(session, name) for name in names]
    return list({node.id: node for node in nodes}.values())


def _alive(session: Session, now: float) -> list[Node]:
    query = select(Node).where(Node.last_seen > now - SILENT_AFTER_S, Node.removed_at.is_(None), is_ours())
    return list(session.scalars(query.order_by(Node.name)))


def _forget_old(session: Session) -> None:
    ended = select(Check.id).where(Check.fence.is_(None), Check.ended_at.is_not(None))
    old = list(session.scalars(ended.order_by(Check.id.desc()).offset(MOST_REMEMBERED - 1)))
    session.execute(delete(CheckedNode).where(CheckedNode.check_id.in_(old)))
    session.execute(delete(Check).where(Check.id.in_(old)))


def _open(
    session: Session,
    nodes: Sequence[tuple[Node, list[str]]],
    now: float,
    *,
    bandwidth: bool,
    fence: int | None = None,
    python: str | None = None,
) -> Check:
    check = Check(
        by=acting.rights().by,
        fence=fence, python=python, bandwidth=bandwidth, asked_at=now, stage=0, stage_at=now, rounds=[], measured=[]
    )  # fmt: skip
    session.add(check)
    session.flush()
    for rank, (node, devices) in enumerate(nodes):
        checked = CheckedNode(check_id=check.id, node_rank=rank, node_id=node.id, node=node.name, answered_stage=-1)
        checked.devices = list(devices)
        session.add(checked)
    session.flush()
    return check


def _checked_nodes(session: Session, check: Check) -> list[CheckedNode]:
    query = select(CheckedNode).where(CheckedNode.check_id == check.id).order_by(CheckedNode.node_rank)
    return list(session.scalars(query))


def _store_answer(check: Check, node: CheckedNode, answer: CheckAnswer) -> None:
    if answer.stage == 0 and answer.facts is not None:
        node.facts = answer.facts.model_dump(mode="json")
    elif answer.stage == 1 and node.facts is not None:
        node.facts = node.facts | {"reached": [reached.model_dump(mode="json") for reached in answer.reached]}
    elif answer.measured is not None and (pair := _pair_of(check, node.node_rank)) is not None:
        _store_measurement(check, pair, answer.measured.bytes_per_s, answer.measured.problem)


def _store_measurement(check: Check, pair: Pair, speed: float | None, problem: str | None) -> None:
    """Merge both nodes' results: an error wins, otherwise the lower bandwidth."""
    previous = [row for row in check.measured if tuple(row[:2]) == pair]
    others = [row for row in check.measured if tuple(row[:2]) != pair]
    speeds = [value for value in (speed, *(row[2] for row in previous)) if value is not None]
    problem = problem or next((row[3] for row in previous if row[3]), None)
    check.measured = [*others, [*pair, min(speeds) if speeds and not problem else None, problem]]


def _advance(session: Session, check: Check, nodes: Sequence[CheckedNode], now: float) -> None:
    while check.ended_at is None:
        missing = _missing(check, nodes)
        if missing and not _is_late(session, check, missing, now):
            return
        _give_up(session, check, missing, now)
        check.stage, check.stage_at = check.stage + 1, now
        if check.stage == FIRST_ROUND and check.bandwidth:
            check.rounds = [list(map(list, round_pairs)) for round_pairs in rounds(_to_measure(session, check, nodes))]
        if check.stage >= FIRST_ROUND + len(check.rounds):
            check.ended_at = now
            _remember_passes(session, check, nodes, now)


def _missing(check: Check, nodes: Sequence[CheckedNode]) -> list[CheckedNode]:
    return [node for node in nodes if node.answered_stage < check.stage and _is_asked(check, node, nodes)]


def _is_asked(check: Check, node: CheckedNode, nodes: Sequence[CheckedNode]) -> bool:
    if check.stage == 0:
        return True
    if check.stage == 1:
        return node.facts is not None and bool(_peers(node, nodes))
    return _pair_of(check, node.node_rank) is not None


def _is_late(session: Session, check: Check, missing: Sequence[CheckedNode], now: float) -> bool:
    """Whether every missing node has timed out."""
    if check.stage > 0:
        return now - check.stage_at > (REACH_LIMIT_S if check.stage == 1 else MEASURE_LIMIT_S)
    if now - check.asked_at > ANSWER_LIMIT_S:
        return True
    ids = [node.node_id for node in missing]
    last_heartbeats = session.scalars(select(Node.last_seen).where(Node.id.in_(ids)))
    has_waited = now - check.asked_at > SECOND_CHANCE_S
    return has_waited and all(is_silent(now - last_seen) for last_seen in last_heartbeats)


def _give_up(session: Session, check: Check, missing: Sequence[CheckedNode], now: float) -> None:
    for node in missing:
        if check.stage == 0:
            row = session.get(Node, node.node_id)
            node.silent_s = max(now - row.last_seen, 0.0) if row else now - check.asked_at
        elif check.stage == 1:
            node.silent_s = now - check.stage_at
        elif (pair := _pair_of(check, node.node_rank)) is not None:
            _store_measurement(check, pair, None, f"{node.node} gave no result within {MEASURE_LIMIT_S:.0f} s")


def _pair_of(check: Check, node_rank: int) -> Pair | None:
    """The pair in which a node measures at the check's stage; None when it does not."""
    if not FIRST_ROUND <= check.stage < FIRST_ROUND + len(check.rounds):
        return None
    matching = (pair for pair in check.rounds[check.stage - FIRST_ROUND] if node_rank in pair)
    return next(((a, b) for a, b in matching), None)


def _to_measure(session: Session, check: Check, nodes: Sequence[CheckedNode]) -> list[Pair]:
    """The pairs to measure: nodes that reach each other and whose devices are not in use."""
    facts = [NodeCheck.model_validate(node.facts) if node.facts else None for node in nodes]
    candidates = pairs(len(nodes), ALL_PAIRS_UP_TO if check.fence is None else PAIRS_BEFORE_A_RUN)
    if check.fence is not None:
        known_facts = [
            (node.node_id, node_facts) for node, node_facts in zip(nodes, facts, strict=True) if node_facts is not None
        ]
        candidates = not_passed(session, known_facts, candidates) if len(known_facts) == len(nodes) else []
    busy = _busy(session, check, nodes)
    return [(a, b) for a, b in candidates if _reach(facts[a], b) and _reach(facts[b], a) and not {a, b} & busy]


def _reach(facts: NodeCheck | None, peer: int) -> bool:
    return facts is not None and any(reached.node_rank == peer and reached.problem is None for reached in facts.reached)


def _busy(session: Session, check: Check, nodes: Sequence[CheckedNode]) -> set[int]:
    """Ranks of nodes whose GPUs are in use; for a run's own measurement only by other programs."""
    foreign = {node.node_rank for node in nodes if node.facts and node.facts.get("foreign_devices")}
    if check.fence is not None:
        return foreign
    query = select(Task.node_id).where(Task.state.in_(LIVE_STATES), Task.device_kind == "cuda")
    training = set(session.scalars(query))
    return foreign | {node.node_rank for node in nodes if node.node_id in training}


def _remember_passes(session: Session, check: Check, nodes: Sequence[CheckedNode], now: float) -> None:
    for a, b, speed, _ in check.measured:
        if speed is None:
            continue
        first, second = sorted((nodes[a], nodes[b]), key=lambda node: node.node_id)
        facts = [NodeCheck.model_validate(node.facts) for node in (first, second)]
        passed = PairPass(node_a=first.node_id, node_b=second.node_id, bytes_per_s=speed, at=now)
        passed.fingerprint = fingerprint(*facts)
        session.merge(passed)


def _peers(node: CheckedNode, nodes: Sequence[CheckedNode]) -> list[CheckPeer]:
    return [
        CheckPeer(node_rank=peer.node_rank, address=peer.facts["address"], port=peer.facts["port"])
        for peer in _with_port(nodes)
        if peer is not node and peer.facts
    ]


def _with_port(nodes: Sequence[CheckedNode]) -> list[CheckedNode]:
    return [node for node in nodes if node.facts and node.facts.get("port")]


def _check_request(check: Check, nodes: Sequence[CheckedNode], node_id: str, by: str | None) -> DesiredCheck:
    node = next(candidate for candidate in nodes if candidate.node_id == node_id)
    pair = _pair_of(check, node.node_rank)
    return DesiredCheck(
        check_id=check.id,
        node_rank=node.node_rank,
        stage=check.stage,
        python=check.python,
        by=by or check.by or "",
        devices=list(node.devices),
        peers=_peers(node, nodes) if check.stage == 1 else [],
        pair=_pair_request(pair, node.node_rank, nodes) if pair else None,
    )


def _pair_request(pair: Pair, node_rank: int, nodes: Sequence[CheckedNode]) -> CheckPair:
    both = [nodes[rank].facts or {} for rank in pair]
    on_gpus = all(facts.get("devices") and facts.get("interpreter", {}).get("cuda") for facts in both)
    return CheckPair(
        rank=0 if node_rank == pair[0] else 1,
        address=both[0]["address"],
        port=both[0]["port"],
        backend="nccl" if on_gpus else "gloo",
    )


def _view(session: Session, check: Check) -> CheckView:
    nodes = _checked_nodes(session, check)
    attempt = session.get_one(Attempt, check.fence) if check.fence is not None else None
    return CheckView(
        id=check.id,
        asked_at=check.asked_at,
        ended_at=check.ended_at,
        run_id=attempt.run_id if attempt is not None else None,
        nodes=[node.node for node in nodes],
        cells=judge(_answers(nodes), for_run=False) + judge_links(links(session, check)),
        bandwidth=bandwidth(len(nodes), check.measured),
        by=attempt.by if attempt is not None else check.by,
    )


def _answers(nodes: Sequence[CheckedNode]) -> list[NodeAnswer]:
    reachable = _with_port(nodes)
    return [
        NodeAnswer(
            node.node,
            NodeCheck.model_validate(node.facts) if node.facts else None,
            silent_s=node.silent_s,
            needs_reach=tuple(peer.node_rank for peer in reachable if peer is not node),
        )
        for node in nodes
    ]


# Pairs of nodes with a successful all-reduce, remembered until their versions or addresses change.


def not_passed(session: Session, facts: Sequence[tuple[str, NodeCheck]], pairs: Iterable[Pair]) -> list[Pair]:
    """The candidate pairs without a successful all-reduce since their nodes' versions or addresses changed."""
    return [(a, b) for a, b in pairs if passed_before(session, facts[a], facts[b]) is None]


def passed_before(session: Session, first: tuple[str, NodeCheck], second: tuple[str, NodeCheck]) -> PairPass | None:
    (node_a, a), (node_b, b) = sorted((first, second), key=lambda item: item[0])
    stored = session.get(PairPass, (node_a, node_b))
    return stored if stored is not None and stored.fingerprint == fingerprint(a, b) else None


def fingerprint(*facts: NodeCheck) -> str:
    identities = [
        [node_facts.address, node_facts.interface, library_versions(node_facts.interpreter)] for node_facts in facts
    ]
    return hashlib.sha256(json.dumps(identities).encode()).hexdigest()
