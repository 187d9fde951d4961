"""Whether nodes can train together: what they found about themselves, judged; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address

from domain.messages import NodeCheck, Reached
from domain.preflight.version_match import Told, disagreement, versions
from domain.text.sizes import in_words
from domain.views import PreflightCell

CLOCK_LIMIT_S = 1.0
"""Clocks further apart than this confuse curves, logs and whoever compares them."""
RESERVE_BYTES = 256 * 1024**2
"""Room for logs and event files, and all there is to go by where no checkpoint is known yet."""
CHECKPOINTS_WITH_ROOM = 3
"""The one there is, the one being written, and the copy on its way to the server."""
SLOW = 0.5
"""A link this much below the median of the others is worth a remark."""


@dataclass(frozen=True)
class Asked:
    """One node, and what it said so far."""

    node: str
    facts: NodeCheck | None
    silent_s: float | None = None
    """Set when it was given up: seconds since it was last heard."""
    needs_bytes: int = RESERVE_BYTES
    needs_reach: tuple[int, ...] = ()
    """Node ranks that it has to find the way to."""

    @cached_property
    def versions(self) -> dict[str, str | None]:
        """Of what trains there, read once: with hundreds of nodes each is compared with each."""
        if self.facts is None or not self.facts.interpreter or self.facts.interpreter.get("problem"):
            return {}
        return versions(self.facts.interpreter)


@dataclass(frozen=True)
class Link:
    """What was measured between two nodes."""

    node: str
    peer: str
    bytes_per_s: float | None
    problem: str | None = None


Found = tuple[str, str, str]
"""state, value, mend"""


def judge(asked: Sequence[Asked], *, for_run: bool) -> list[PreflightCell]:
    """Every check on every node, row by row; rows that mean nothing here are left out."""
    rows = _OF_ALL | (_OF_RUNS if for_run else {})
    cells: list[PreflightCell] = []
    for row, look in rows.items():
        found = [PreflightCell(row, one.node, None, *_seen(one, asked, look)) for one in asked]
        if row == "alive" or any(cell.state not in ("skipped", "waiting") for cell in found):
            cells += found
    return cells + [cell for one in asked for cell in _reach(one, asked)]


def red(cells: Sequence[PreflightCell]) -> list[PreflightCell]:
    """Those that stop a run."""
    return [cell for cell in cells if cell.state == "failed"]


def unanswered(asked: Sequence[Asked], cells: Sequence[PreflightCell]) -> list[str]:
    """Nodes that have still something to say."""
    waiting = {cell.node for cell in cells if cell.state == "waiting"}
    unprepared = {one.node for one in asked if one.facts is None or not one.facts.is_prepared}
    return [one.node for one in asked if one.node in waiting | unprepared]


def sentence(asked: Sequence[Asked], cells: Sequence[PreflightCell]) -> tuple[str, str]:
    """What the red cells say, and how to mend it: both for people."""
    found = red(cells)
    first = found[0]
    told = [Told(one.node, one.facts.interpreter) for one in asked if one.facts]
    if first.row in versions({}) and (text := disagreement(told)):
        return text, first.mend
    place = first.node + (f" → {first.peer}" if first.peer else "")
    more = {1: "", 2: " One more cell is red."}.get(len(found), f" {len(found) - 1} more cells are red.")
    return f"Preflight: {first.row}, {place}: {first.value}.{more}", first.mend


def judge_links(links: Sequence[Link]) -> list[PreflightCell]:
    """A cell for each pair: red where no all-reduce went through, a warning where it is slow for these nodes."""
    speeds = sorted(link.bytes_per_s for link in links if link.bytes_per_s is not None)
    median = speeds[len(speeds) // 2] if len(speeds) > 2 else 0.0
    return [PreflightCell("bandwidth", link.node, link.peer, *_speed(link, median)) for link in links]


def rate(bytes_per_s: float) -> str:
    """1.2 GB/s, as networks are sold."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.3g} {unit}"
    return f"{bytes_per_s / 1e3:.3g} kB/s"


def _seen(one: Asked, asked: Sequence[Asked], look: Callable[[Asked, Sequence[Asked]], Found]) -> Found:
    if one.facts is None and look is not _alive:
        return ("waiting" if one.silent_s is None else "skipped", "", "")
    return look(one, asked)


def _alive(one: Asked, asked: Sequence[Asked]) -> Found:
    if one.facts is not None:
        return "ok", "answers", ""
    if one.silent_s is None:
        return "waiting", "", ""
    mend = "Look whether its worker runs, and whether the node reaches the server; then try again."
    return "failed", f"no word for {one.silent_s:.0f} s", mend


def _interpreter(one: Asked, asked: Sequence[Asked]) -> Found:
    found = _facts(one).interpreter
    if problem := found.get("problem"):
        return "failed", str(problem).rstrip("."), "Then try again."
    if not found:
        return "skipped", "", ""
    return "ok", f"{found.get('python')} ({found.get('path')})", ""


def _version(what: str) -> Callable[[Asked, Sequence[Asked]], Found]:
    """Those that have another version than most are red; with as many on both sides, those after the first."""

    def look(one: Asked, asked: Sequence[Asked]) -> Found:
        all_found = [found for each in asked if (found := _has(each, what)) is not None]
        own = _has(one, what)
        if own is None or set(all_found) <= {"none"}:
            return "skipped", own or "", ""
        usual = Counter(all_found).most_common(1)[0][0]
        if own == usual:
            return "ok", own, ""
        mend = f"Install the same {what} everywhere, or choose one interpreter for all nodes with --python."
        return "failed", f"{own}, others have {usual}", mend

    return look


def _has(one: Asked, what: str) -> str | None:
    return one.versions.get(what)


def _interface(one: Asked, asked: Sequence[Asked]) -> Found:
    facts = _facts(one)
    if facts.interface is None and not _is_address(facts.address):
        return "ok", facts.address, ""  # a name: whether it leads here is found out by the others
    if facts.interface is None:
        mend = "Restart its worker with --address and one of its addresses, as `ip address` lists them."
        return "failed", f"no network card has the address {facts.address}", mend
    if not facts.interface_is_up:
        return (
            "failed",
            f"{facts.interface} ({facts.address}) is down",
            f"Bring {facts.interface} up: `ip link set {facts.interface} up`.",
        )
    return "ok", f"{facts.interface}, {facts.address}", ""


def _port(one: Asked, asked: Sequence[Asked]) -> Found:
    facts = _facts(one)
    if facts.port_problem:
        mend = f"Restart its worker with --address and an address it has, or free ports on {facts.address}."
        return "failed", facts.port_problem, mend
    return ("ok", f"{facts.port} is free", "") if facts.port else ("skipped", "", "")


def _devices(one: Asked, asked: Sequence[Asked]) -> Found:
    facts = _facts(one)
    if facts.foreign_devices:
        count = len(facts.foreign_devices)
        value = f"{', '.join(facts.foreign_devices[:2])}{' and more' * (count > 2)} in use by another program"
        return "failed", value, "End that program (`nvidia-smi` lists it), or wait for its end."
    return (
        ("ok", f"{len(facts.devices)} free of other programs", "") if facts.devices else ("skipped", "", "")
    )


def _disk(one: Asked, asked: Sequence[Asked]) -> Found:
    facts = _facts(one)
    if facts.disk_free_bytes is None:
        return "skipped", "", ""
    value = f"{in_words(facts.disk_free_bytes)} free"
    if facts.disk_free_bytes >= one.needs_bytes:
        return "ok", value, ""
    mend = f"Make room on the disk of {facts.disk_path}, or start the worker with --data on a larger one."
    return "failed", f"{value}, {in_words(one.needs_bytes)} needed", mend


def _clock(one: Asked, asked: Sequence[Asked]) -> Found:
    """Against the server's clock; where nodes differ by less than the limit, it is the server that is off."""
    facts = _facts(one)
    if facts.clock_offset_s is None:
        return "skipped", "", ""
    offset = facts.clock_offset_s
    value = f"{abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} the server"
    if abs(offset) - facts.clock_error_s <= CLOCK_LIMIT_S or not _differ(asked):
        return "ok", value if abs(offset) > CLOCK_LIMIT_S else "right", ""
    return "failed", value, "Let it follow a time server: `timedatectl set-ntp true`, or chrony."


def _differ(asked: Sequence[Asked]) -> bool:
    known = [one.facts for one in asked if one.facts and one.facts.clock_offset_s is not None]
    offsets = [facts.clock_offset_s or 0.0 for facts in known]
    error_s = max((facts.clock_error_s for facts in known), default=0.0)
    return len(known) < 2 or max(offsets) - min(offsets) > CLOCK_LIMIT_S + error_s


def _script(one: Asked, asked: Sequence[Asked]) -> Found:
    facts = _facts(one)
    if facts.problem:
        return "failed", facts.problem.rstrip("."), "Put it there, or launch the run with its code."
    return ("ok", "there", "") if facts.is_prepared else ("waiting", "", "")


def _code(one: Asked, asked: Sequence[Asked]) -> Found:
    own = _facts(one).code
    hashes = [each.facts.code for each in asked if each.facts and each.facts.code]
    if own is None:
        return "skipped", "", ""
    usual = Counter(hashes).most_common(1)[0][0]
    if own == usual:
        return "ok", own[:12], ""
    mend = "Bring the same code to all nodes, or launch without --workdir: then every node gets the same."
    return "failed", f"{own[:12]}, others have {usual[:12]}", mend


def _reach(one: Asked, asked: Sequence[Asked]) -> Iterator[PreflightCell]:
    """Each way that does not work by itself; those that do, in one cell."""
    if not one.needs_reach:
        return
    tried = {found.node_rank: found for found in one.facts.reached} if one.facts else {}
    missing = [peer for peer in one.needs_reach if peer not in tried]
    good = [tried[peer] for peer in one.needs_reach if peer in tried and tried[peer].problem is None]
    for peer in one.needs_reach:
        if (found := tried.get(peer)) is not None and found.problem is not None:
            value = f"{found.problem} at {_endpoint(found)}"
            yield PreflightCell(
                "reach", one.node, asked[peer].node, "failed", value, _way(found, one, asked[peer])
            )
    only = asked[one.needs_reach[0]].node if len(one.needs_reach) == 1 else None
    if missing:
        state = "waiting" if one.silent_s is None else "skipped"
        yield PreflightCell("reach", one.node, only, state, "", "")
    elif good:
        slowest_s = max(found.took_s or 0.0 for found in good)
        whom = _endpoint(good[0]) if only else f"{len(good)} of {len(one.needs_reach)} nodes"
        yield PreflightCell("reach", one.node, only, "ok", f"{whom}, {slowest_s * 1000:.1f} ms", "")


def _way(found: Reached, one: Asked, peer: Asked) -> str:
    if _is_loopback(found.address):
        return f"Nobody else reaches {found.address}: restart the worker of {peer.node} with --address."
    if found.trouble == "foreign":
        return f"Another program answers there: end it, or give {peer.node}'s worker the right --address."
    if found.trouble == "refused":
        return (
            f"{found.address} may lead to another machine, or a firewall refuses: check the --address of "
            f"{peer.node}, and open its TCP ports to {one.node}."
        )
    return (
        f"A firewall or a missing route is between them: open the TCP ports of {peer.node} to {one.node}, "
        f"or restart its worker with an --address that {one.node} reaches."
    )


def _speed(link: Link, median: float) -> Found:
    if link.problem is not None:
        mend = "An all-reduce needs all TCP ports between the nodes: open them, and check their --address."
        return "failed", link.problem, mend
    if link.bytes_per_s is None:
        return "skipped", "", ""
    if link.bytes_per_s < SLOW * median:
        mend = "Look at its cable, its network card's speed, and what else uses it."
        return "warning", f"{rate(link.bytes_per_s)}, the median is {rate(median)}", mend
    return "ok", rate(link.bytes_per_s), ""


def _facts(one: Asked) -> NodeCheck:
    assert one.facts is not None  # rows are asked of nodes that have answered
    return one.facts


def _endpoint(found: Reached) -> str:
    return f"[{found.address}]:{found.port}" if ":" in found.address else f"{found.address}:{found.port}"


def _is_address(text: str) -> bool:
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return _is_address(address) and ip_address(address.partition("%")[0]).is_loopback


_OF_ALL: dict[str, Callable[[Asked, Sequence[Asked]], Found]] = {
    "alive": _alive,
    "interpreter": _interpreter,
    **{what: _version(what) for what in versions({})},
    "interface": _interface,
    "port": _port,
    "devices": _devices,
    "disk": _disk,
    "clock": _clock,
}
_OF_RUNS: dict[str, Callable[[Asked, Sequence[Asked]], Found]] = {"script": _script, "code": _code}
