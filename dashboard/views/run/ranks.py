"""The Ranks tab: per-rank performance, collectives and stack traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import streamlit as st

from dashboard.components.browser import phases
from dashboard.service import service
from dashboard.views.layout import actions, permissions, style
from dashboard.views.layout.tables import block, show_list, table
from dashboard.views.run.profiles import profiles
from db.metrics.performance import arithmetic_of, phase_totals, reduction_of
from db.ranks import ranks as db_ranks
from db.ranks.ranks import node_records, verdict
from domain.collectives import NodeCollectives, RankCollectives, Wait, call_name, waits_of_node
from domain.lists import run_lists
from domain.messages import StackFrame
from domain.performance.efficiency import arithmetic_sentence as arithmetic_sentence
from domain.performance.efficiency import reduction_sentence as reduction_sentence
from domain.performance.slow_ranks import slow_ranks
from domain.spec import label_of
from domain.text.formats import UNKNOWN, as_text, duration_words, short_path, size
from domain.views import RankView, RunView


@style.quiet_without_store
def ranks(run: RunView) -> None:
    """Show the probe's latest figures of each rank; slow ranks are marked."""
    if not run.spec.probe:
        st.caption(f'This run was launched with "{label_of("probe")}" off, so nothing measured its ranks.')
        return
    run_id = run.id
    rank_views = db_ranks.ranks(service.current().store, run_id)
    if not rank_views:
        ended = "No optimizer step of any rank was seen, so there are no figures of this run's ranks."
        waiting = "No rank has made an optimizer step yet. Each rank appears here with its first step."
        st.caption(ended if run.state.is_terminal else waiting)
    else:
        cause = {slow.rank: slow.cause for slow in slow_ranks(*phase_totals(service.current().store, run_id))}
        phases(run_id, key="phases")
        _say_how_it_computes(run_id)
        _list(rank_views[:MOST_RANKS], cause)
    if not run.state.is_terminal:
        st.button(
            "Show stack traces and collectives", icon=":material/location_searching:", key=f"ask_stacks_{run_id}",
            on_click=_ask, args=(run_id,),
            **permissions.limits_on(
                run, "Asks each rank for its Python stack and its latest collectives; training is not disturbed."
            ),
        )  # fmt: skip
    profiles(run_id, rank_views, is_live=not run.state.is_terminal)
    collectives(run_id)
    _stacks(run_id)


MOST_RANKS = 256


def _list(rank_views: Sequence[RankView], causes: Mapping[int, str]) -> None:
    """List the ranks; `causes`: why the others wait for one."""

    def name(rank: RankView) -> object:
        return f"{rank.rank} ◂ the others wait ({causes[rank.rank]})" if rank.rank in causes else rank.rank

    show_list("ranks", run_lists.RANKS, rank_views, {"rank": name})


def _say_how_it_computes(run_id: str) -> None:
    """Show how gradients are averaged, and the arithmetic where it can be estimated."""
    store = service.current().store
    if reduction := reduction_of(store, run_id):
        st.caption(as_text(reduction_sentence(*reduction)))
    if arithmetic := arithmetic_of(store, run_id):
        st.caption(as_text(arithmetic_sentence(arithmetic)))


@actions.told
def _ask(run_id: str) -> None:
    service.current().ask_stacks(run_id)


def _stacks(run_id: str) -> None:
    stacks = db_ranks.stacks(service.current().store, run_id)
    if stacks.requested_at is None:
        return
    if not stacks.complete:
        st.caption("Asking every node …")
    for node in stacks.nodes:
        for rank, frames in sorted(node.ranks.items()):
            st.caption(as_text(f"rank {rank} on {node.node}, innermost line first"))
            st.code(_text(frames), language=None, wrap_lines=True)


def _text(frames: Sequence[StackFrame]) -> str:
    lines = [f"{short_path(frame.file)}:{frame.line} in {frame.function}" for frame in frames]
    return "\n".join(lines) or "This rank did not answer."


# The collectives of each rank on the Ranks tab: where it stands, what it sent, and whom it waited for.


def collectives(run_id: str) -> None:
    """Show the collectives as they were asked for last; nothing before that."""
    nodes = [(name, node) for name, node in node_records(service.current().store, run_id) if node.ranks]
    if not nodes:
        return
    st.header("Collectives", anchor=False)
    if divergence := verdict([node for _, node in nodes]):
        st.warning(as_text(divergence.sentence), icon=":material/call_split:")
    span_s = _span(nodes)
    rows = (row for name, node in nodes for row in _collective_rows(name, node, span_s))
    table("collectives", COLLECTIVE_COLUMNS, list(islice(rows, MOST_COLLECTIVES)))
    st.caption(
        "The latest collectives of each rank. A bar is the share of its time slice in which the rank waited for the "
        "last rank of its node; the rank that waits least is the one the others wait for."
    )


COLLECTIVE_COLUMNS = ("Rank", "Node", "Stands in", "State", ">Calls", ">Bytes", ">Waited", "Calls and waits")
MOST_COLLECTIVES = 64
STRIP_CHARACTERS = 60
LEAST_SHARE = 1 / 16
"""A wait that takes less of a time slice is not drawn there."""


def _span(nodes: Sequence[tuple[str, NodeCollectives]]) -> float:
    """Seconds that the strips cover: the longest record of any rank."""
    records = [record for _, node in nodes for record in node.ranks if record.calls]
    return max((record.at - record.calls[0].called_at for record in records), default=0.0)


def _collective_rows(name: str, node: NodeCollectives, span_s: float) -> Iterator[list[object]]:
    waits = waits_of_node(node.ranks)
    for record in node.ranks:
        yield _collective_row(name, record, waits[record.rank], span_s)


def _collective_row(node: str, record: RankCollectives, waits: Sequence[Wait], span_s: float) -> list[object]:
    call = record.position
    if call is None:
        reason = record.why_not or ("no collective yet" if record.is_read else "did not answer")
        return [record.rank, node, UNKNOWN, reason, UNKNOWN, UNKNOWN, UNKNOWN, ""]
    state = "over" if call.retired else f"waits for {duration_words(max(0.0, record.at - call.called_at))}"
    return [
        record.rank,
        node,
        call_name(call),
        f"ended, {state}" if record.ended else state,
        len(waits),
        size(sum(wait.call.size_bytes for wait in waits)),
        f"{sum(wait.waited_s for wait in waits):.3g} s",
        strip(waits, record.at - span_s, span_s),
    ]


def strip(waits: Sequence[Wait], begin: float, span_s: float) -> str:
    """Return one character for each time slice: how much of it the rank waited; `·` where it called nothing."""
    slice_s = span_s / STRIP_CHARACTERS
    if slice_s <= 0:
        return ""
    waited_s, has_call = [0.0] * STRIP_CHARACTERS, [False] * STRIP_CHARACTERS
    for wait in waits:
        first = min(STRIP_CHARACTERS - 1, max(0, int((wait.call.called_at - begin) / slice_s)))
        has_call[first], remaining_s = True, wait.waited_s
        room_s = slice_s - (wait.call.called_at - begin - first * slice_s)
        for at in range(first, STRIP_CHARACTERS):
            waited_s[at] += min(room_s, remaining_s)
            remaining_s -= min(room_s, remaining_s)
            room_s = slice_s
            if remaining_s <= 0:
                break
    return "".join(
        block(waited / slice_s) if called or waited > LEAST_SHARE * slice_s else "·"
        for waited, called in zip(waited_s, has_call, strict=True)
    )
