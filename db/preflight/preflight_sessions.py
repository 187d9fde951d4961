"""Preflights that are asked of nodes in stages: what each node is to find out next, and what was found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from sqlalchemy import delete, or_, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Attempt, Check, CheckPart, Node, PairPass, Run, Task
from db.records.exceptions import NoSuchNode
from domain.errors import InvalidRequest
from domain.liveness import SILENT_AFTER_S
from domain.messages import LIVE_STATES, CheckAnswer, NodeCheck
from domain.preflight.judgement import Asked, Link, judge, judge_links, red
from domain.preflight.pairs import Pair, pairs, rounds
from domain.preflight.version_match import versions
from domain.spec import CheckPair, CheckPeer, CheckWish
from domain.views import CheckView, PreflightCell

KEPT = 20
"""Preflights on demand that are remembered."""
ALL_PAIRS_UP_TO = 16
"""Of more nodes only neighbours in a ring are measured: each pair takes seconds."""
PAIRS_BEFORE_A_RUN = 4
"""The same before a run, which waits for it: then there are three rounds of seconds at most."""
ANSWER_LIMIT_S = 40.0
"""For a node that is alive; an interpreter on a network disk may take long to answer."""
SECOND_CHANCE_S = 3.0
"""For a node that was silent already when it was asked."""
REACH_LIMIT_S = 20.0
MEASURE_LIMIT_S = 180.0
"""Nodes give up a little earlier themselves: importing torch from a network disk may take a minute."""
FIRST_ROUND = 2
"""The stage of the first round of all-reduces."""


def ask(store: Store, nodes: Sequence[str] | None, bandwidth: bool, now: float) -> int:
    """Wish for a preflight of these nodes (names or ids; None: all that are alive); returns its id.

    Raises NoSuchNode, Refused."""
    with store.write() as session:
        found = _named(session, nodes) if nodes is not None else _alive(session, now)
        if not found:
            raise InvalidRequest("nodes", "nodes: no node is alive: there is nothing to check.")
        _forget_old(session)
        return _open(session, [(node, []) for node in found], now, bandwidth=bandwidth).id


def open_for_attempt(session: Session, attempt: Attempt, now: float) -> None:
    """Wish for the bandwidth between an attempt's nodes, which it waits for, in the Python that trains."""
    python = session.get_one(Run, attempt.run_id).spec.get("python")
    query = (
        select(Task, Node)
        .join(Node, Node.id == Task.node_id)
        .where(Task.fence == attempt.fence)
        .order_by(Task.node_rank)
    )
    found = [
        (node, part.devices if part.device_kind == "cuda" else []) for part, node in session.execute(query)
    ]
    _open(session, found, now, bandwidth=True, fence=attempt.fence, python=python)


def wishes(store: Store, node_id: str) -> list[CheckWish]:
    """The preflights a node takes part in, each at its stage, answered or not: the complete list, every time."""
    with store.read() as session:
        query = (
            select(Check)
            .join(CheckPart, CheckPart.check_id == Check.id)
            .where(CheckPart.node_id == node_id, Check.ended_at.is_(None))
            .order_by(Check.id)
        )
        found = list(session.scalars(query))
        return [_wish(check, _parts(session, check), node_id) for check in found]


def node_ids(store: Store, check_id: int) -> list[str]:
    """The nodes that take part in a preflight."""
    with store.read() as session:
        return list(session.scalars(select(CheckPart.node_id).where(CheckPart.check_id == check_id)))


def answered(session: Session, node_id: str, check_id: int, said: CheckAnswer, now: float) -> Check | None:
    """Take a node's answer; returns the check when it goes on by it. Late and repeated ones change nothing."""
    check = session.get(Check, check_id)
    if check is None or check.ended_at is not None or said.stage != check.stage:
        return None
    parts = _parts(session, check)
    part = next((each for each in parts if each.node_id == node_id), None)
    if part is None or part.answered_stage >= said.stage:
        return None
    part.answered_stage = said.stage
    _keep(check, part, said)
    _advance(session, check, parts, now)
    return check


def overdue(session: Session, now: float) -> list[Check]:
    """Go on without nodes that do not answer; returns the checks that went on."""
    moved = []
    for check in session.scalars(select(Check).where(Check.ended_at.is_(None)).order_by(Check.id)):
        before = (check.stage, check.ended_at)
        _advance(session, check, _parts(session, check), now)
        if (check.stage, check.ended_at) != before:
            moved.append(check)
    return moved


def has_open(session: Session) -> bool:
    """Is any preflight under way?"""
    return session.scalar(select(Check.id).where(Check.ended_at.is_(None)).limit(1)) is not None


def of_attempt(session: Session, fence: int) -> Check | None:
    """The measurement that an attempt waits for, or waited."""
    return session.scalars(select(Check).where(Check.fence == fence)).first()


def on_demand(store: Store) -> list[int]:
    """Ids of those that were asked for on demand, newest first."""
    query = select(Check.id).where(Check.fence.is_(None)).order_by(Check.id.desc()).limit(KEPT)
    with store.read() as session:
        return list(session.scalars(query))


def views(store: Store, check_id: int | None = None) -> list[CheckView]:
    """What was asked for on demand, newest first, or one preflight."""
    query = select(Check).order_by(Check.id.desc()).limit(KEPT)
    query = query.where(Check.fence.is_(None) if check_id is None else Check.id == check_id)
    with store.read() as session:
        return [_view(session, check) for check in session.scalars(query)]


def red_cells(session: Session, check: Check) -> list[PreflightCell]:
    """What is wrong with the nodes of a preflight, but for the bandwidth between them."""
    return red(judge(_asked(_parts(session, check)), for_run=False))


def links(session: Session, check: Check) -> list[Link]:
    """What was measured, by the names of the nodes."""
    names = {part.node_rank: part.node for part in _parts(session, check)}
    return [Link(names[a], names[b], speed, problem) for a, b, speed, problem in check.measured]


def bandwidth(nodes: int, measured: Iterable[Sequence[float | None]]) -> list[list[float | None]]:
    """A symmetric matrix of bytes per second."""
    found: list[list[float | None]] = [[None] * nodes for _ in range(nodes)]
    for a, b, speed, _ in measured:
        found[int(a or 0)][int(b or 0)] = found[int(b or 0)][int(a or 0)] = speed
    return found


def not_passed(
    session: Session, found: Sequence[tuple[str, NodeCheck]], wanted: Iterable[Pair]
) -> list[Pair]:
    """Pairs between which no all-reduce went through since their nodes' versions or addresses changed."""
    return [(a, b) for a, b in wanted if _pass(session, found[a], found[b]) is None]


def _pass(session: Session, one: tuple[str, NodeCheck], other: tuple[str, NodeCheck]) -> PairPass | None:
    (node_a, a), (node_b, b) = sorted((one, other), key=lambda each: each[0])
    known = session.get(PairPass, (node_a, node_b))
    return known if known is not None and known.fingerprint == _fingerprint(a, b) else None


def _fingerprint(*facts: NodeCheck) -> str:
    said = [[each.address, each.interface, versions(each.interpreter)] for each in facts]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _named(session: Session, wanted: Sequence[str]) -> list[Node]:
    found: dict[str, Node] = {}
    for name in wanted:
        query = select(Node).where(or_(Node.name == name, Node.id == name), Node.removed_at.is_(None))
        node = session.scalars(query.order_by(Node.id != name)).first()
        if node is None:
            raise NoSuchNode(f"There is no node {name!r}.")
        found[node.id] = node
    return list(found.values())


def _alive(session: Session, now: float) -> list[Node]:
    query = select(Node).where(Node.last_seen >= now - SILENT_AFTER_S, Node.removed_at.is_(None))
    return list(session.scalars(query.order_by(Node.name)))


def _forget_old(session: Session) -> None:
    ended = select(Check.id).where(Check.fence.is_(None), Check.ended_at.is_not(None))
    old = list(session.scalars(ended.order_by(Check.id.desc()).offset(KEPT - 1)))
    session.execute(delete(CheckPart).where(CheckPart.check_id.in_(old)))
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
        fence=fence, python=python, bandwidth=bandwidth, asked_at=now, stage=0, stage_at=now, rounds=[], measured=[]
    )  # fmt: skip
    session.add(check)
    session.flush()
    for rank, (node, devices) in enumerate(nodes):
        part = CheckPart(
            check_id=check.id, node_rank=rank, node_id=node.id, node=node.name, answered_stage=-1
        )
        part.devices = list(devices)
        session.add(part)
    session.flush()
    return check


def _parts(session: Session, check: Check) -> list[CheckPart]:
    query = select(CheckPart).where(CheckPart.check_id == check.id).order_by(CheckPart.node_rank)
    return list(session.scalars(query))


def _keep(check: Check, part: CheckPart, said: CheckAnswer) -> None:
    if said.stage == 0 and said.facts is not None:
        part.facts = said.facts.model_dump(mode="json")
    elif said.stage == 1 and part.facts is not None:
        part.facts = part.facts | {"reached": [each.model_dump(mode="json") for each in said.reached]}
    elif said.measured is not None and (pair := _pair_of(check, part.node_rank)) is not None:
        _keep_measured(check, pair, said.measured.bytes_per_s, said.measured.problem)


def _keep_measured(check: Check, pair: Pair, speed: float | None, problem: str | None) -> None:
    """Of two words on one pair, trouble counts, else the slower."""
    said = [each for each in check.measured if tuple(each[:2]) == pair]
    others = [each for each in check.measured if tuple(each[:2]) != pair]
    speeds = [found for found in (speed, *(each[2] for each in said)) if found is not None]
    problem = problem or next((each[3] for each in said if each[3]), None)
    check.measured = [*others, [*pair, min(speeds) if speeds and not problem else None, problem]]


def _advance(session: Session, check: Check, parts: Sequence[CheckPart], now: float) -> None:
    while check.ended_at is None:
        missing = _missing(check, parts)
        if missing and not _is_late(session, check, missing, now):
            return
        _give_up(session, check, missing, now)
        check.stage, check.stage_at = check.stage + 1, now
        if check.stage == FIRST_ROUND and check.bandwidth:
            check.rounds = [list(map(list, each)) for each in rounds(_to_measure(session, check, parts))]
        if check.stage >= FIRST_ROUND + len(check.rounds):
            check.ended_at = now
            _remember_passes(session, check, parts, now)


def _missing(check: Check, parts: Sequence[CheckPart]) -> list[CheckPart]:
    return [part for part in parts if part.answered_stage < check.stage and _is_asked(check, part, parts)]


def _is_asked(check: Check, part: CheckPart, parts: Sequence[CheckPart]) -> bool:
    if check.stage == 0:
        return True
    if check.stage == 1:
        return part.facts is not None and bool(_peers(part, parts))
    return _pair_of(check, part.node_rank) is not None


def _is_late(session: Session, check: Check, missing: Sequence[CheckPart], now: float) -> bool:
    """Whether nobody who has still to answer may have more time."""
    if check.stage > 0:
        return now - check.stage_at > (REACH_LIMIT_S if check.stage == 1 else MEASURE_LIMIT_S)
    if now - check.asked_at > ANSWER_LIMIT_S:
        return True
    ids = [part.node_id for part in missing]
    heard = session.scalars(select(Node.last_seen).where(Node.id.in_(ids)))
    return all(now > max(seen + SILENT_AFTER_S, check.asked_at + SECOND_CHANCE_S) for seen in heard)


def _give_up(session: Session, check: Check, missing: Sequence[CheckPart], now: float) -> None:
    for part in missing:
        if check.stage == 0:
            node = session.get(Node, part.node_id)
            part.silent_s = max(now - node.last_seen, 0.0) if node else now - check.asked_at
        elif check.stage == 1:
            part.silent_s = now - check.stage_at
        elif (pair := _pair_of(check, part.node_rank)) is not None:
            _keep_measured(check, pair, None, f"{part.node} gave no result within {MEASURE_LIMIT_S:.0f} s")


def _pair_of(check: Check, node_rank: int) -> Pair | None:
    """Whom a node measures with at the check's stage."""
    if not FIRST_ROUND <= check.stage < FIRST_ROUND + len(check.rounds):
        return None
    found = (each for each in check.rounds[check.stage - FIRST_ROUND] if node_rank in each)
    return next(((a, b) for a, b in found), None)


def _to_measure(session: Session, check: Check, parts: Sequence[CheckPart]) -> list[Pair]:
    """Pairs that reach each other, and whose devices nobody uses."""
    facts = [NodeCheck.model_validate(part.facts) if part.facts else None for part in parts]
    wanted = pairs(len(parts), ALL_PAIRS_UP_TO if check.fence is None else PAIRS_BEFORE_A_RUN)
    if check.fence is not None:
        known = [(part.node_id, each) for part, each in zip(parts, facts, strict=True) if each is not None]
        wanted = not_passed(session, known, wanted) if len(known) == len(parts) else []
    busy = _busy(session, check, parts)
    return [(a, b) for a, b in wanted if _reach(facts[a], b) and _reach(facts[b], a) and not {a, b} & busy]


def _reach(facts: NodeCheck | None, peer: int) -> bool:
    return facts is not None and any(
        found.node_rank == peer and found.problem is None for found in facts.reached
    )


def _busy(session: Session, check: Check, parts: Sequence[CheckPart]) -> set[int]:
    """Nodes whose GPUs train, or are used by others; a run's own are kept free for it."""
    foreign = {part.node_rank for part in parts if part.facts and part.facts.get("foreign_devices")}
    if check.fence is not None:
        return foreign
    query = select(Task.node_id).where(Task.state.in_(LIVE_STATES), Task.device_kind == "cuda")
    training = set(session.scalars(query))
    return foreign | {part.node_rank for part in parts if part.node_id in training}


def _remember_passes(session: Session, check: Check, parts: Sequence[CheckPart], now: float) -> None:
    for a, b, speed, _ in check.measured:
        if speed is None:
            continue
        one, other = sorted((parts[a], parts[b]), key=lambda part: part.node_id)
        facts = [NodeCheck.model_validate(part.facts) for part in (one, other)]
        known = PairPass(node_a=one.node_id, node_b=other.node_id, bytes_per_s=speed, at=now)
        known.fingerprint = _fingerprint(*facts)
        session.merge(known)


def _peers(part: CheckPart, parts: Sequence[CheckPart]) -> list[CheckPeer]:
    return [
        CheckPeer(node_rank=each.node_rank, address=each.facts["address"], port=each.facts["port"])
        for each in _with_port(parts)
        if each is not part and each.facts
    ]


def _with_port(parts: Sequence[CheckPart]) -> list[CheckPart]:
    return [part for part in parts if part.facts and part.facts.get("port")]


def _wish(check: Check, parts: Sequence[CheckPart], node_id: str) -> CheckWish:
    part = next(each for each in parts if each.node_id == node_id)
    pair = _pair_of(check, part.node_rank)
    return CheckWish(
        check_id=check.id,
        node_rank=part.node_rank,
        stage=check.stage,
        python=check.python,
        devices=list(part.devices),
        peers=_peers(part, parts) if check.stage == 1 else [],
        pair=_pair_wish(pair, part.node_rank, parts) if pair else None,
    )


def _pair_wish(pair: Pair, node_rank: int, parts: Sequence[CheckPart]) -> CheckPair:
    both = [parts[rank].facts or {} for rank in pair]
    on_gpus = all(facts.get("devices") and facts.get("interpreter", {}).get("cuda") for facts in both)
    return CheckPair(
        rank=0 if node_rank == pair[0] else 1,
        address=both[0]["address"],
        port=both[0]["port"],
        backend="nccl" if on_gpus else "gloo",
    )


def _view(session: Session, check: Check) -> CheckView:
    parts = _parts(session, check)
    return CheckView(
        id=check.id,
        asked_at=check.asked_at,
        ended_at=check.ended_at,
        run_id=session.get_one(Attempt, check.fence).run_id if check.fence is not None else None,
        nodes=[part.node for part in parts],
        cells=judge(_asked(parts), for_run=False) + judge_links(links(session, check)),
        bandwidth=bandwidth(len(parts), check.measured),
    )


def _asked(parts: Sequence[CheckPart]) -> list[Asked]:
    reachable = _with_port(parts)
    return [
        Asked(
            part.node,
            NodeCheck.model_validate(part.facts) if part.facts else None,
            silent_s=part.silent_s,
            needs_reach=tuple(each.node_rank for each in reachable if each is not part),
        )
        for part in parts
    ]
