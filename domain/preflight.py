"""Judge what nodes measured of themselves and each other, and whether their libraries can train together. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from typing import Any

from domain.messages import NodeCheck, Reached
from domain.text.formats import agree, as_list, clock_offset, size
from domain.views import PreflightCell

CLOCK_LIMIT_S = 1.0
"""Clocks further apart than this make curves and logs of different nodes hard to compare."""
RESERVE_BYTES = 256 * 1024**2
"""Disk space for logs and event files; the only requirement where no checkpoint is known yet."""
CHECKPOINTS_WITH_ROOM = 3
"""The last checkpoint, the one being written, and the copy being uploaded to the server."""
SLOW = 0.5
"""A link slower than this fraction of the median gets a warning."""


@dataclass(frozen=True)
class NodeAnswer:
    """A node and its preflight answers so far."""

    node: str
    facts: NodeCheck | None
    silent_s: float | None = None
    """Seconds since its last heartbeat, set once the preflight no longer waits for it."""
    needs_bytes: int = RESERVE_BYTES
    needs_reach: tuple[int, ...] = ()
    """Ranks of the nodes it must reach."""

    @cached_property
    def versions(self) -> dict[str, str | None]:
        """Component versions of its interpreter, cached: hundreds of nodes are compared pairwise."""
        if self.facts is None or not self.facts.interpreter or self.facts.interpreter.get("problem"):
            return {}
        return library_versions(self.facts.interpreter)


@dataclass(frozen=True)
class Link:
    """The bandwidth measured between two nodes."""

    node: str
    peer: str
    bytes_per_s: float | None
    problem: str | None = None


Outcome = tuple[str, str, str]
"""(state, value, fix) of a cell."""


def judge(answers: Sequence[NodeAnswer], *, for_run: bool) -> list[PreflightCell]:
    """The cells of every check on every node, row by row; rows that do not apply are left out."""
    rows = _OF_ALL | (_OF_RUNS if for_run else {})
    cells: list[PreflightCell] = []
    for row, check in rows.items():
        row_cells = [PreflightCell(row, answer.node, None, *_outcome(answer, answers, check)) for answer in answers]
        row_cells = row_cells if for_run else [_of_node_alone(cell) for cell in row_cells]
        if row == "alive" or any(cell.state not in ("skipped", "waiting") for cell in row_cells):
            cells += row_cells
    return cells + [cell for answer in answers for cell in _reach(answer, answers)]


def red(cells: Sequence[PreflightCell]) -> list[PreflightCell]:
    """The failed cells: any of them stops a run."""
    return [cell for cell in cells if cell.state == "failed"]


def unanswered(answers: Sequence[NodeAnswer], cells: Sequence[PreflightCell]) -> list[str]:
    """Names of the nodes with answers outstanding."""
    waiting = {cell.node for cell in cells if cell.state == "waiting"}
    unprepared = {answer.node for answer in answers if answer.facts is None or not answer.facts.is_prepared}
    return [answer.node for answer in answers if answer.node in waiting | unprepared]


def sentence(answers: Sequence[NodeAnswer], cells: Sequence[PreflightCell]) -> tuple[str, str]:
    """The message of the failed cells and the fix, both as sentences."""
    failures = red(cells)
    first = failures[0]
    interpreters = [NodeInterpreter(answer.node, answer.facts.interpreter) for answer in answers if answer.facts]
    if first.row in library_versions({}) and (text := version_disagreement(interpreters)):
        return text, first.fix
    location = first.node + (f" → {first.peer}" if first.peer else "")
    remainder = {1: "", 2: " One more cell is red."}.get(len(failures), f" {len(failures) - 1} more cells are red.")
    return f"Preflight: {first.row}, {location}: {first.value}.{remainder}", first.fix


def judge_links(links: Sequence[Link]) -> list[PreflightCell]:
    """A cell for each pair: failed where the all-reduce failed, a warning where it is slow for these nodes."""
    speeds = sorted(link.bytes_per_s for link in links if link.bytes_per_s is not None)
    median = speeds[len(speeds) // 2] if len(speeds) > 2 else 0.0
    return [PreflightCell("bandwidth", link.node, link.peer, *_speed(link, median)) for link in links]


def rate(bytes_per_s: float) -> str:
    """1.2 GB/s: decimal units, as network cards are specified."""
    for unit, scale in (("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_s >= scale:
            return f"{bytes_per_s / scale:.3g} {unit}"
    return f"{bytes_per_s / 1e3:.3g} kB/s"


def _outcome(
    answer: NodeAnswer,
    answers: Sequence[NodeAnswer],
    check: Callable[[NodeAnswer, Sequence[NodeAnswer]], Outcome],
) -> Outcome:
    if answer.facts is None and check is not _alive:
        return ("waiting" if answer.silent_s is None else "skipped", "", "")
    return check(answer, answers)


def _alive(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Outcome:
    if answer.facts is not None:
        return "ok", "answers", ""
    if answer.silent_s is None:
        return "waiting", "", ""
    fix = "Check that its worker is running and that the node reaches the server; then try again."
    return "failed", f"silent for {answer.silent_s:.0f} s", fix


def _of_node_alone(cell: PreflightCell) -> PreflightCell:
    """A node without torch trains what brings its own, so that only a run can say that it is missing."""
    if cell.row != "interpreter" or cell.state != "failed" or " has no torch" not in cell.value:
        return cell
    fix = "Runs get theirs from a lock file (--environment) or a Python that has it (--python)."
    return PreflightCell(cell.row, cell.node, None, "warning", "no torch of its own", fix)


def _interpreter(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Outcome:
    interpreter = _facts(answer).interpreter
    if problem := interpreter.get("problem"):
        return "failed", str(problem).rstrip("."), "Then try again."
    if not interpreter:
        return "skipped", "", ""
    return "ok", f"{interpreter.get('python')} ({interpreter.get('path')})", ""


def _version(component: str) -> Callable[[NodeAnswer, Sequence[NodeAnswer]], Outcome]:
    """The check of one component: any version but the most common fails; in a tie the first node's version wins."""

    def check(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Outcome:
        library_versions = [
            other_version for other in answers if (other_version := _component_version(other, component)) is not None
        ]
        version = _component_version(answer, component)
        if version is None or set(library_versions) <= {"none"}:
            return "skipped", version or "", ""
        most_common = Counter(library_versions).most_common(1)[0][0]
        if version == most_common:
            return "ok", version, ""
        fix = f"Install the same {component} everywhere, or choose one interpreter for all nodes with --python."
        return "failed", f"{version}, others have {most_common}", fix

    return check


def _component_version(answer: NodeAnswer, component: str) -> str | None:
    return answer.versions.get(component)


def _interface(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Outcome:
    facts = _facts(answer)
    if facts.interface is None and not _is_address(facts.address):
        # A host name: the other nodes find out whether it resolves to this node.
        return "ok", facts.address, ""
    if facts.interface is None:
        fix = "Restart its worker with --address set to one of its own addresses (`ip address` lists them)."
        return "failed", f"no network card has the address {facts.address}", fix
    if not facts.interface_is_up:
        return (
            "failed",
            f"{facts.interface} ({facts.address}) is down",
            f"Bring {facts.interface} up: `ip link set {facts.interface} up`.",
        )
    return "ok", f"{facts.interface}, {facts.address}", ""


def _port(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Outcome:
    facts = _facts(answer)
    if facts.port_problem:
        fix = f"Restart its worker with --address set to one of its own addresses, or free ports on {facts.address}."
        return "failed", facts.port_problem, fix
    return ("ok", f"{facts.port} is free", "") if facts.port else ("skipped", "", "")


def _devices(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Outcome:
    facts = _facts(answer)
    if facts.foreign_devices:
        count = len(facts.foreign_devices)
        value = f"{', '.join(facts.foreign_devices[:2])}{' and more' * (count > 2)} in use by another program"
        return "failed", value, "End that program (`nvidia-smi` lists it), or wait until it ends."
    return ("ok", f"{len(facts.devices)} free of other programs", "") if facts.devices else ("skipped", "", "")


def _disk(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Outcome:
    facts = _facts(answer)
    if facts.disk_free_bytes is None:
        return "skipped", "", ""
    value = f"{size(facts.disk_free_bytes, is_coarse=True)} free"
    if facts.disk_free_bytes >= answer.needs_bytes:
        return "ok", value, ""
    fix = f"Free space on the disk of {facts.disk_path}, or start the worker with --data on a larger one."
    return "failed", f"{value}, {size(answer.needs_bytes, is_coarse=True)} needed", fix


def _clock(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Outcome:
    """Compare with the server's clock; where all nodes agree, the server's clock is the wrong one."""
    facts = _facts(answer)
    if facts.clock_offset_s is None:
        return "skipped", "", ""
    offset = facts.clock_offset_s
    value = f"{clock_offset(offset)} the server"
    if abs(offset) - facts.clock_error_s <= CLOCK_LIMIT_S or not _differ(answers):
        return "ok", value if abs(offset) > CLOCK_LIMIT_S else "right", ""
    return "failed", value, "Synchronise its clock with a time server: `timedatectl set-ntp true`, or chrony."


def _differ(answers: Sequence[NodeAnswer]) -> bool:
    timed = [answer.facts for answer in answers if answer.facts and answer.facts.clock_offset_s is not None]
    offsets = [facts.clock_offset_s or 0.0 for facts in timed]
    error_s = max((facts.clock_error_s for facts in timed), default=0.0)
    return len(timed) < 2 or max(offsets) - min(offsets) > CLOCK_LIMIT_S + error_s


def _script(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Outcome:
    facts = _facts(answer)
    if facts.problem:
        return "failed", facts.problem.rstrip("."), "Copy it there, or launch the run with its code."
    return ("ok", "there", "") if facts.is_prepared else ("waiting", "", "")


def _code(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Outcome:
    digest = _facts(answer).code
    digests = [other.facts.code for other in answers if other.facts and other.facts.code]
    if digest is None:
        return "skipped", "", ""
    most_common = Counter(digests).most_common(1)[0][0]
    if digest == most_common:
        return "ok", digest[:12], ""
    fix = "Copy the same code to all nodes, or launch without --workdir: then every node gets the same code."
    return "failed", f"{digest[:12]}, others have {most_common[:12]}", fix


def _reach(answer: NodeAnswer, answers: Sequence[NodeAnswer]) -> Iterator[PreflightCell]:
    """One cell for each peer that cannot be reached, and one for all that can."""
    if not answer.needs_reach:
        return
    attempts = {attempt.node_rank: attempt for attempt in answer.facts.reached} if answer.facts else {}
    missing = [peer for peer in answer.needs_reach if peer not in attempts]
    reached = [attempts[peer] for peer in answer.needs_reach if peer in attempts and attempts[peer].problem is None]
    for peer in answer.needs_reach:
        if (attempt := attempts.get(peer)) is not None and attempt.problem is not None:
            value = f"{attempt.problem} at {_endpoint(attempt)}"
            yield PreflightCell(
                "reach",
                answer.node,
                answers[peer].node,
                "failed",
                value,
                _reach_fix(attempt, answer, answers[peer]),
            )
    single_peer = answers[answer.needs_reach[0]].node if len(answer.needs_reach) == 1 else None
    if missing:
        state = "waiting" if answer.silent_s is None else "skipped"
        yield PreflightCell("reach", answer.node, single_peer, state, "", "")
    elif reached:
        slowest_s = max(attempt.took_s or 0.0 for attempt in reached)
        target = _endpoint(reached[0]) if single_peer else f"{len(reached)} of {len(answer.needs_reach)} nodes"
        yield PreflightCell("reach", answer.node, single_peer, "ok", f"{target}, {slowest_s * 1000:.1f} ms", "")


def _reach_fix(attempt: Reached, answer: NodeAnswer, peer: NodeAnswer) -> str:
    if _is_loopback(attempt.address):
        return f"No other node reaches {attempt.address}: restart the worker of {peer.node} with --address."
    if attempt.trouble == "foreign":
        return f"Another program answers there: end it, or give {peer.node}'s worker the right --address."
    if attempt.trouble == "refused":
        return (
            f"{attempt.address} may lead to another machine, or a firewall rejects the connection: check "
            "the --address of "
            f"{peer.node}, and open its TCP ports to {answer.node}."
        )
    return (
        f"A firewall or a missing route is between them: open the TCP ports of {peer.node} to {answer.node}, "
        f"or restart its worker with an --address that {answer.node} reaches."
    )


def _speed(link: Link, median: float) -> Outcome:
    if link.problem is not None:
        fix = "An all-reduce needs all TCP ports between the nodes: open them, and check their --address."
        return "failed", link.problem, fix
    if link.bytes_per_s is None:
        return "skipped", "", ""
    if link.bytes_per_s < SLOW * median:
        fix = "Check its cable, the speed of its network card, and other traffic on it."
        return "warning", f"{rate(link.bytes_per_s)}, the median is {rate(median)}", fix
    return "ok", rate(link.bytes_per_s), ""


def _facts(answer: NodeAnswer) -> NodeCheck:
    assert answer.facts is not None  # rows are judged for nodes that have answered
    return answer.facts


def _endpoint(attempt: Reached) -> str:
    return f"[{attempt.address}]:{attempt.port}" if ":" in attempt.address else f"{attempt.address}:{attempt.port}"


def _is_address(text: str) -> bool:
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return _is_address(address) and ip_address(address.partition("%")[0]).is_loopback


def library_versions(interpreter: Mapping[str, Any]) -> dict[str, str | None]:
    """The version of each component that must be the same on all nodes; None where it is unknown."""
    return {component: version(interpreter) for component, version in _MUST_AGREE.items()}


def _torch(interpreter: Mapping[str, Any]) -> str:
    """2.13.0 for 2.13.0+cu126: CUDA and ROCm are compared separately."""
    return str(interpreter.get("torch")).partition("+")[0]


def _cuda(interpreter: Mapping[str, Any]) -> str:
    return _numbers(interpreter.get("cuda"), 2) or "none"


def _rocm(interpreter: Mapping[str, Any]) -> str:
    return _numbers(interpreter.get("rocm"), 2) or "none"


def _nccl(interpreter: Mapping[str, Any]) -> str | None:
    """The NCCL version; None where it is unknown, because it may be built into torch."""
    return _numbers(interpreter.get("nccl"), 3)


def _numbers(version: object, count: int) -> str | None:
    """The first `count` numbers of a version, or as many as it has."""
    numbers = re.findall(r"\d+", str(version or ""))[:count]
    return ".".join(numbers) or None


_MUST_AGREE: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "torch": _torch,
    "CUDA": _cuda,
    "ROCm": _rocm,
    "NCCL": _nccl,
}
_OF_ALL: dict[str, Callable[[NodeAnswer, Sequence[NodeAnswer]], Outcome]] = {
    "alive": _alive,
    "interpreter": _interpreter,
    **{component: _version(component) for component in library_versions({})},
    "interface": _interface,
    "port": _port,
    "devices": _devices,
    "disk": _disk,
    "clock": _clock,
}
_OF_RUNS: dict[str, Callable[[NodeAnswer, Sequence[NodeAnswer]], Outcome]] = {
    "script": _script,
    "code": _code,
}

# The pairs of nodes whose bandwidth is measured, and their order. Pure.

Pair = tuple[int, int]


def pairs(nodes: int, all_up_to: int) -> list[Pair]:
    """Every pair of `nodes` nodes; with more than `all_up_to` nodes, only the neighbours in a ring."""
    if nodes <= all_up_to:
        return [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]
    ring = {(min(n, (n + 1) % nodes), max(n, (n + 1) % nodes)) for n in range(nodes)}
    return sorted((a, b) for a, b in ring if a != b)


def rounds(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Divide the pairs into few rounds; no node is in two pairs of one round.

    Each pair goes into the first round where both of its nodes are free. In the order of a round-robin tournament
    this gives n - 1 rounds for all pairs of an even number of nodes, n for an odd number."""
    pairs = list(pairs)
    nodes = max((b for _, b in pairs), default=0) + 1
    schedule: list[list[Pair]] = []
    for pair in sorted(pairs, key=lambda pair: (_round_of(pair, nodes), pair)):
        free = (members for members in schedule if not any(set(pair) & set(other) for other in members))
        if (one := next(free, None)) is not None:
            one.append(pair)
        else:
            schedule.append([pair])
    return schedule


def _round_of(pair: Pair, nodes: int) -> int:
    """The pair's round in a round-robin tournament (circle method): a and b meet in round a + b, the last is fixed."""
    players = nodes + nodes % 2
    a, b = pair
    return (2 * a if b == players - 1 else a + b) % max(1, players - 1)


# Compare the libraries of the nodes' interpreters: nodes with different versions cannot train together. Pure.

MOST_NAMED = 8
"""Nodes a sentence names one by one; it counts the others."""


@dataclass(frozen=True)
class NodeInterpreter:
    """A node and the facts about the Python that trains there."""

    node: str
    interpreter: Mapping[str, Any]


def version_disagreement(interpreters: Sequence[NodeInterpreter]) -> str | None:
    """A sentence naming the nodes that differ in torch, CUDA, ROCm or NCCL; None when they agree."""
    differing = [component for component, version in _MUST_AGREE.items() if len(_numbers_of(interpreters, version)) > 1]
    if not differing:
        return None
    groups: dict[str, list[str]] = {}
    for reported in interpreters:
        groups.setdefault(_description(reported.interpreter, differing), []).append(reported.node)
    groups_text = ", ".join(
        f"{names(nodes)} {agree(len(nodes), 'has', 'have')} {text}" for text, nodes in groups.items()
    )
    return (
        f"The nodes disagree on {as_list(differing)}: {groups_text}. "
        "Install the same everywhere, or choose one interpreter for all nodes with --python."
    )


def version_remark(interpreters: Sequence[NodeInterpreter]) -> str | None:
    """A history line when the nodes' Python versions differ, which stops nothing; None when they agree."""
    groups: dict[str, list[str]] = {}
    for reported in interpreters:
        groups.setdefault(_numbers(reported.interpreter.get("python"), 2) or "unknown", []).append(reported.node)
    if len(groups) < 2:
        return None
    groups_text = ", ".join(f"{version} on {names(nodes)}" for version, nodes in groups.items())
    return f"the nodes train with different Pythons: {groups_text}"


def names(nodes: Sequence[str]) -> str:
    """The nodes as a list in a sentence: a, b and c, or with many nodes: a, b and 5 more."""
    return as_list(nodes, MOST_NAMED)


def _numbers_of(
    interpreters: Sequence[NodeInterpreter], version: Callable[[Mapping[str, Any]], str | None]
) -> set[str]:
    return {number for reported in interpreters if (number := version(reported.interpreter)) is not None}


def _description(interpreter: Mapping[str, Any], differing: Sequence[str]) -> str:
    """torch 2.13.0+cu126, NCCL 2.21.5 (/usr/bin/python): torch always, other components where they differ."""
    descriptions = [f"torch {interpreter.get('torch')}"]
    descriptions += [
        f"{component} {interpreter.get(component.lower()) or ('unknown' if component == 'NCCL' else 'none')}"
        for component in differing
        if component != "torch"
    ]
    return f"{', '.join(descriptions)} ({interpreter.get('path')})"
