"""The lists that a terminal and a page, or a page and a report, both show: each is described once. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any

from domain.health.holders import by_position
from domain.people.rights import OWNER
from domain.text.columns import Column, Columns, Figure
from domain.text.formats import (
    ago,
    agree,
    clock_minute,
    clock_offset,
    clock_time,
    count,
    duration_words,
    milliseconds,
    number,
    plural,
    signature,
    size,
    state_label,
)

if TYPE_CHECKING:
    from domain.people.accounts import UserView
    from domain.people.tokens import AccessTokenView
    from domain.scaling.points import Point
    from domain.views import CheckpointView, HistoryView, JoinTokenView, NodeView, RankView

# What a run made.

RANKS: Columns[RankView] = (
    Column("rank"), Column("node"), Figure("step", lambda rank: count(rank.step)),
    Figure("step time", lambda rank: milliseconds(rank.step_time_s)),
    Figure("waits for data", lambda rank: milliseconds(rank.data_wait_s)),
    Figure("memory", lambda rank: size(rank.peak_memory_bytes)),
)  # fmt: skip


def checkpoints(when: Callable[[float], str]) -> Columns[CheckpointView]:
    """Return the columns of checkpoints; `when` puts the moment of saving into words."""
    return [
        Column("name"), Figure("step", lambda one: ("≈ " if one.step_is_inferred else "") + count(one.step)),
        Figure("loss", lambda one: number(one.loss, 4)), Figure("size", lambda one: size(one.size_bytes)),
        Column("state", lambda one: ", ".join([progress(one), *marks(one)])), Figure("attempt"),
        Column("saved", lambda one: when(one.created_at)), Column("SHA-256", lambda one: f"{one.sha256[:12]}…"),
    ]  # fmt: skip


def progress(checkpoint: CheckpointView, attempt_has_ended: bool = False) -> str:
    """Return how much of a checkpoint has arrived, in words."""
    if checkpoint.complete:
        return "complete"
    share = f"{checkpoint.received_bytes / (checkpoint.size_bytes or 1):.0%} received"
    if checkpoint.is_asked_for_again:
        return f"asked for again, {share}"
    if attempt_has_ended:
        return "never completed"
    return f"{share}, waiting" if checkpoint.trouble else share


def marks(checkpoint: CheckpointView) -> list[str]:
    """Return what tells a checkpoint from the others, each in a word or two."""
    prefix = checkpoint.prefix or ""
    wrapper = "DDP" if prefix.startswith("module.") else "torch.compile" if prefix == "_orig_mod." else prefix
    words = {
        "latest": checkpoint.latest, "best": checkpoint.best, "only a part": checkpoint.is_part,
        f"{wrapper} prefix": checkpoint.prefix,
    }  # fmt: skip
    return [word for word, holds in words.items() if holds]


def history(zone: tzinfo, with_people: bool) -> Columns[HistoryView]:
    """Return the columns of a run's history in a time zone."""
    columns: list[Column[HistoryView]] = [
        Column("when (UTC)" if zone is UTC else "when", lambda line: clock_time(line.at, zone)), Figure("attempt"),
        Column("what", lambda line: line.text), Column("who", lambda line: signature(line.by, line.via)),
    ]  # fmt: skip
    return columns if with_people else columns[:-1]


STRATEGIES = {"ddp": "DDP", "dp": "DataParallel", "single": "a single process", "fsdp": "FSDP"}


def scaling_points(has_batches: bool) -> Columns[Point]:
    """Return the columns of the sizes of a scaling study, with the global batch where several are compared."""
    columns: list[Column[Point]] = [
        Figure("global batch", lambda point: count(point.global_batch_size)), Figure("devices"), Figure("nodes"),
        Column("strategy", lambda point: STRATEGIES.get(point.strategy, point.strategy)), Column("run"),
        Figure("samples/s", lambda point: _known(point.samples_per_s, number)),
        Figure("speed-up", lambda point: _known(point.speedup, "{:.2f}x".format)),
        Figure("efficiency", lambda point: _known(point.efficiency, "{:.0%}".format)),
        Figure("spread", lambda point: _known(point.spread, "{:.1%}".format)),
        Column("limit", lambda point: point.limit or point.problem),
    ]  # fmt: skip
    return columns if has_batches else columns[1:]


def _known(value: float | None, words: Callable[[float], str]) -> str:
    return "" if value is None else words(value)


# People, and the tokens that let them, or nodes, in.


def people(now: float) -> Columns[UserView]:
    """Return the columns of everybody with an account."""
    return [
        Column("name"), Column("e-mail", lambda person: person.email),
        Column("role", lambda person: person.role or "none"), Column("in projects", roles_in_projects),
        Column("last seen", lambda person: ago(person.last_seen_at, now)),
    ]  # fmt: skip


def roles_in_projects(person: UserView) -> str:
    """Return a person's roles in single projects: admin of speech, member of vision."""
    return ", ".join(f"{role} of {project}" for project, role in sorted(person.projects.items()))


def access_tokens(now: float) -> Columns[AccessTokenView]:
    """Return the columns of access tokens."""
    return [
        Column("name"), Column("of", lambda token: token.user), Column("scope"),
        Column("project", lambda token: token.project or "all"), Column("state", lambda token: end_of(token, now)),
        Column("last used", lambda token: ago(token.last_used_at, now)),
    ]  # fmt: skip


def end_of(token: AccessTokenView, now: float) -> str:
    """Return when an access token ends, in words."""
    if token.expires_at is None:
        return "until revoked"
    end = token.expires_at
    return f"until {clock_minute(end)}" if now < end else f"expired {ago(end, now)}"


def join_tokens(now: float) -> Columns[JoinTokenView]:
    """Return the columns of join tokens."""
    return [
        Column("id"), Column("name"), Column("state", lambda token: f"{state_of(token, now)} {lasting(token, now)}"),
        Figure("used", lambda token: token.uses), Column("last", lambda token: ago(token.last_used_at, now)),
    ]  # fmt: skip


def state_of(token: JoinTokenView, now: float) -> str:
    """Return a join token's state: valid, revoked or expired."""
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if now < token.expires_at else "expired"


def lasting(token: JoinTokenView, now: float) -> str:
    """Return how long a join token is still valid, or how long ago it ended."""
    ended_at = token.expires_at if token.revoked_at is None else token.revoked_at
    if state_of(token, now) != "valid":
        return ago(ended_at, now)
    left_s = token.expires_at - now + 59  # a token made for a day shows 24 h, not 23
    return f"for {duration_words(left_s)} more, until {clock_minute(token.expires_at)}"


# Nodes, and the hosts that become nodes.

WAITING, WORKING, FAILED = "waiting", "working", "failed"
HOSTS: Columns[Any] = (
    Column("host"), Column("node"), Column("state", lambda host: host_state(host)),
    Figure("seconds", lambda host: "" if host.state == WAITING else f"{host.seconds:.0f}"), Column("message"),
)  # fmt: skip
"""Hosts as the command that installs workers has them, or as the dashboard knows them by its reports."""
CLOCK_AGREES_S = 1.0


def host_state(host: Any) -> str:
    """Return the step that a host is at, or its state."""
    return str(host.step if host.state == WORKING and host.step else host.state)


def nodes(now: float) -> Columns[NodeView]:
    """Return the columns of nodes."""
    return [
        Column("name"), Column("state", node_state), Column("address"), Figure("slots"), Figure("free"),
        Column("devices", kinds), Column("versions", lambda node: versions(node.info or {})),
        Column("runs", lambda node: " ".join(runs_on(node))),
        Column("last seen", lambda node: ago(node.last_seen, now)),
    ]  # fmt: skip


def node_state(node: NodeView) -> str:
    """Return a node's state, and why nothing new starts there: online, draining by ana."""
    by = f" by {node.drained_by}" if node.drained_by not in (None, OWNER) else ""
    flags = {f"draining{by}": node.draining, "in quarantine": node.quarantine, "to upgrade": node.upgrade}
    return ", ".join([state_label(node.state), *(flag for flag, holds in flags.items() if holds)])


def kinds(node: NodeView) -> str:
    """8 × NVIDIA H200, 4 slots of AMD EPYC; a gateway has no devices of its own."""
    if node.pool == "slurm":
        return "gateway to Slurm"
    counts = Counter((device.kind, device.name) for device in node.devices)
    return ", ".join(
        f"{n} × {name}" if kind == "cuda" else f"{plural(n, 'slot')} of {name}" for (kind, name), n in counts.items()
    )


def noun(node: NodeView) -> str:
    """The noun for one device of the node."""
    return "GPU" if any(device.kind == "cuda" for device in node.devices) else "slot"


def versions(info: Mapping[str, Any]) -> str:
    """Return the versions of a node's interpreter and driver: torch 2.13.0, CUDA 12.6, NCCL 2.27.5, driver 550.54."""
    driver = [f"driver {info['driver_version']}"] if info.get("driver_version") else []
    return ", ".join(versions_of(info.get("interpreter") or {}) + driver)


def versions_of(interpreter: Mapping[str, Any]) -> list[str]:
    """Return an interpreter's known versions: Python 3.11.8, torch 2.13.0, CUDA 12.6, NCCL 2.21.5."""
    names = {"python": "Python", "torch": "torch", "cuda": "CUDA", "rocm": "ROCm", "nccl": "NCCL"}
    return [f"{label} {interpreter[name]}" for name, label in names.items() if interpreter.get(name)]


def runs_on(node: NodeView) -> list[str]:
    """Return the ids of the runs that hold devices of the node; private ones have none."""
    runs = sorted({device.run_id for device in node.devices if device.run_id})
    return [*runs, "private"] if any(device.private for device in node.devices) else runs


def notices(node: NodeView) -> list[str]:
    """The problems of one node in sentences: its silence, otherwise the messages of its worker."""
    if node.state != "alive":
        runs = len({device.run_id for device in node.devices if device.run_id})
        affected_runs = f" {plural(runs, 'run')} {agree(runs, 'has', 'have')} devices there." if runs else ""
        silence = "Lost: silent" if node.state == "lost" else "Silent"
        return [f"{silence} for {duration_words(node.silent_s)}.{affected_runs}"]
    off_s, interpreter = clock_off_s(node), (node.info or {}).get("interpreter") or {}
    messages = [
        *quarantines(node), *(node.left_out or ()), node.upgrade, *(one["message"] for one in node.unknown or ()),
        (node.load or {}).get("notice"), interpreter.get("problem"),
        None if off_s is None else f"Its clock is {clock_offset(off_s)} the dashboard's.",
    ]  # fmt: skip
    return [str(text) for text in messages if text]


def quarantines(node: NodeView) -> list[str]:
    """Why the node, or each of its devices, is in quarantine."""
    if node.quarantine:
        return [f"In quarantine: {node.quarantine.why}"]
    return [
        f"{noun(node)} {position} is in quarantine: {device.quarantine.why}"
        for position, device in enumerate(node.devices)
        if device.quarantine
    ]


def other_users(node: NodeView) -> list[str]:
    """What holds its devices besides the runs, in sentences."""
    holders = by_position((device.id for device in node.devices), node.load)
    return [f"{noun(node)} {position} is used by {holder}" for position, holder in holders]


def clock_off_s(node: NodeView) -> float | None:
    """Seconds by which a node's clock is ahead of the dashboard's; None when the difference is negligible."""
    info = node.info or {}
    offset_s, error_s = info.get("clock_offset_s"), info.get("clock_error_s") or 0.0
    return offset_s if offset_s is not None and abs(offset_s) - error_s > CLOCK_AGREES_S else None
