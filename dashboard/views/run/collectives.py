"""The collectives of each rank on the Ranks tab: where it stands, what it sent, and whom it waited for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import streamlit as st

from dashboard.service import service
from dashboard.views.layout.tables import table
from db.ranks.ranks import node_records, verdict
from domain.collectives import NodeCollectives, RankCollectives, Wait, call_name, waits_of_node
from domain.text.formats import UNKNOWN, as_text, duration_words, size


def collectives(run_id: str) -> None:
    """Show the collectives as they were asked for last; nothing before that."""
    nodes = [(name, node) for name, node in node_records(service.current().store, run_id) if node.ranks]
    if not nodes:
        return
    st.header("Collectives", anchor=False)
    if divergence := verdict([node for _, node in nodes]):
        st.warning(as_text(divergence.sentence), icon=":material/call_split:")
    span_s = _span(nodes)
    rows = (row for name, node in nodes for row in _rows(name, node, span_s))
    table("collectives", COLUMNS, list(islice(rows, MOST_RANKS)))
    st.caption(
        "The latest collectives of each rank. A bar is the share of its time slice in which the rank waited for the "
        "last rank of its node to come; the rank that waits least is the one the others wait for."
    )


COLUMNS = ("Rank", "Node", "Stands in", "State", ">Calls", ">Bytes", ">Waited", "Calls and waits")
MOST_RANKS = 64
STRIP_CHARACTERS = 60
LEVELS = " ▁▂▃▄▅▆▇█"
"""Share of the time that the rank spent waiting."""


def _span(nodes: Sequence[tuple[str, NodeCollectives]]) -> float:
    """Seconds that the strips cover: the longest record of any rank."""
    records = [record for _, node in nodes for record in node.ranks if record.calls]
    return max((record.at - record.calls[0].called_at for record in records), default=0.0)


def _rows(name: str, node: NodeCollectives, span_s: float) -> Iterator[list[object]]:
    waits = waits_of_node(node.ranks)
    for record in node.ranks:
        yield _row(name, record, waits[record.rank], span_s)


def _row(node: str, record: RankCollectives, waits: Sequence[Wait], span_s: float) -> list[object]:
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
    return "".join(_mark(share / slice_s, called) for share, called in zip(waited_s, has_call, strict=True))


def _mark(share: float, has_call: bool) -> str:
    level = LEVELS[min(len(LEVELS) - 1, round(share * (len(LEVELS) - 1)))]
    return level if level != " " else ("▁" if has_call else "·")
