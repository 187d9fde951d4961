"""Compare a run with another one: settings and phases in tables, code file by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import tzinfo

import streamlit as st

from dashboard.compare import runs
from dashboard.compare.document import step_phases
from dashboard.compare.spec_changes import SpecChange
from dashboard.compare.spec_words import in_words
from dashboard.service import service
from dashboard.snapshots.differences import FileChange, Kind, quoted
from dashboard.views.layout.tables import Markup, table
from dashboard.views.run.tabs import browser_zone
from db.runs import run_queries
from domain.performance.phases import in_words as phase_in_words
from domain.text.formats import UNKNOWN, as_text, change, clock_time, count, plural, size
from domain.views import RunView


def compare(run: RunView) -> None:
    """Show a choice of runs, and the differences from the chosen one."""
    others = candidates(run)
    if not others:
        st.caption("There is no other run to compare with yet.")
        return
    chosen = _choice(run, {other.id: other for other in others})
    if chosen is not None:
        current = service.current()
        _settings(runs.setting_changes(current.store, chosen, run), chosen)
        compare_phases(chosen, run)
        _code(runs.code(current, chosen, run), chosen, run)


DRAWN = "_drawn"
MOST_RUNS = 200
MOST_FILES = 30
MOST_LINES = 400
MOST_CHARACTERS = 300_000
"""Limit on the characters of all shown files, which a browser can highlight at once."""
LONGEST_LINE = 1_000
FEW_FILES = 3
"""Number of files up to which all are open at first."""
LONGEST_VALUE = 300
VERDICTS = {
    True: (":material/check:", "The same code."),
    False: (":material/info:", "Different code."),
    None: (":material/info:", "The code cannot be compared."),
}
ICONS: dict[Kind, str] = {
    "added": ":material/add_circle:",
    "removed": ":material/do_not_disturb_on:",
    "changed": ":material/edit:",
    "renamed": ":material/arrow_forward:",
}


def candidates(run: RunView) -> list[RunView]:
    """Return all other runs: those of the same target first, then of the same project; newest first."""
    current = service.current()
    newest = run_queries.runs(current.store, current.now_for_contact(), limit=MOST_RUNS)
    others = [other for other in newest if other.id != run.id]
    named = st.query_params.get("compare", "")
    if named not in (run.id, *(other.id for other in others)) and (older := current.find_run(named)):
        others.append(older)
    return sorted(others, key=lambda other: _distance(run, other))


def predecessor(run: RunView, others: Sequence[RunView]) -> RunView | None:
    """Return the newest earlier run with the same name or target."""
    earlier = [other for other in others if other.created_at <= run.created_at]
    similar = [o for o in earlier if o.name == run.name or o.spec.target == run.spec.target]
    return max(similar, key=lambda other: other.created_at, default=None)


def within(text: str, longest_line: int) -> str:
    """Return the text with long lines cut."""
    lines = text.split("\n")
    return "\n".join(line if len(line) <= longest_line else f"{line[:longest_line]} …" for line in lines)


def _distance(run: RunView, other: RunView) -> tuple[int, float]:
    if other.spec.target == run.spec.target:
        return 0, -other.created_at
    return 1 if other.project == run.project else 2, -other.created_at


def _choice(run: RunView, others: dict[str, RunView]) -> RunView | None:
    """Return the chosen run; it is in the address, so that a comparison can be shared."""
    key = f"compare_{run.id}"
    if key not in st.session_state or st.session_state[key] not in (None, *others):
        named = st.query_params.get("compare")
        before = predecessor(run, list(others.values()))
        st.session_state[key] = named if named in others else before.id if before else None
    zone = browser_zone()
    chosen = st.selectbox(
        "Compare with", list(others), format_func=lambda run_id: _described(others[run_id], zone), key=key,
        index=None, placeholder="Choose a run", on_change=_put_into_address, args=(key,),
    )  # fmt: skip
    st.session_state[key + DRAWN] = chosen
    return others[chosen] if chosen else None


def _put_into_address(key: str) -> None:
    chosen = st.session_state[key]
    if chosen == st.session_state.get(key + DRAWN):
        return  # a browser that is slow to answer repeats what it was given, and Streamlit takes that for a choice
    if chosen:
        st.query_params["compare"] = chosen
    else:
        st.query_params.pop("compare", None)


def _described(run: RunView, zone: tzinfo) -> str:
    """Return a run in one line, without age and state: Streamlit takes an option whose text changes for another."""
    return f"{run.name} · {run.id} · {clock_time(run.created_at, zone)}"


def _settings(changes: Sequence[SpecChange], other: RunView) -> None:
    if not changes:
        st.markdown(":material/check: The same settings.")
        return
    rows = [(change.label, *map(_short, in_words(change.old, change.new))) for change in changes]
    table("differences", ("Setting", other.name, "This run"), rows)


def _short(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]} …"


def _code(comparison: runs.CodeComparison, other: RunView, run: RunView) -> None:
    if not comparison.difference.files:
        icon, sentence = VERDICTS[comparison.same]
        st.markdown(f"{icon} {as_text(' '.join(filter(None, (sentence, comparison.note))))}")
        return
    files = comparison.difference.files
    st.markdown(_summary(files))
    if comparison.difference.truncated:
        st.caption("The difference is too large to show in full: some files are only named, without line counts.")
    characters_left = MOST_CHARACTERS
    with st.container(gap="xsmall"):
        for position, file in enumerate(files[:MOST_FILES]):
            characters_left -= _file(file, position, is_open=len(files) <= FEW_FILES, most_characters=characters_left)
    if len(files) > MOST_FILES:
        st.caption(f"{plural(len(files) - MOST_FILES, 'more file differs', 'more files differ')}:")
        names = "\n".join(f"{file.kind:8} {_name(file)}" for file in files[MOST_FILES:])
        st.code(names, language=None, height=300 if len(files) > MOST_FILES + 12 else "content")
    if len(files) > MOST_FILES or characters_left <= 0 or comparison.difference.truncated:
        st.caption("As one text, for a pager or `git apply`:")
        st.code(f"rankzero diff {other.id} {run.id}", language="bash")


def _summary(files: Sequence[FileChange]) -> str:
    kinds = Counter(file.kind for file in files)
    kinds_text = ", ".join(f"{count(kinds[kind])} {kind}" for kind in ICONS if kinds[kind])
    differ = plural(len(files), "file differs", "files differ")
    return f"{differ} ({kinds_text}){_lines(files)}"


def _lines(files: Sequence[FileChange]) -> str:
    """Return the counts of added and removed lines, coloured."""
    added, removed = sum(file.lines_added for file in files), sum(file.lines_removed for file in files)
    text = f"\u2002:green[+{count(added)}]" if added else ""
    return text + (f"\u2002:red[−{count(removed)}]" if removed else "")


def _file(file: FileChange, position: int, is_open: bool, most_characters: int) -> int:
    """Show one file's difference and return its number of characters."""
    label = Markup(f"{as_text(_name(file))}{_lines([file])}")
    with st.expander(label, expanded=is_open, icon=ICONS[file.kind], key=f"difference_{position}"):
        if not file.lines:
            st.caption(as_text(_without_lines(file)))
            return 0
        text = within(_first_lines(file.lines), LONGEST_LINE)
        if len(text) > most_characters:
            st.caption("Too long to show here.")
            return 0
        st.code(text, language="diff")
        if file.lines.count("\n") > MOST_LINES:
            st.caption(f"The first {MOST_LINES} of {count(file.lines.count(chr(10)))} lines.")
        return len(text)


def _first_lines(text: str) -> str:
    return "\n".join(text.split("\n", MOST_LINES)[:MOST_LINES]).rstrip("\n")


def _name(file: FileChange) -> str:
    return f"{quoted(file.old_name)} → {quoted(file.name)}" if file.old_name else quoted(file.name)


def _without_lines(file: FileChange) -> str:
    sizes = [size(size_bytes) for size_bytes in (file.old_size_bytes, file.new_size_bytes) if size_bytes is not None]
    sizes_text = " → ".join(dict.fromkeys(sizes))
    if file.omitted:
        return f"{sizes_text}; {file.omitted}."
    if file.kind == "renamed":
        return f"Renamed without changes; {sizes_text}."
    if file.kind == "changed":
        return "Only the executable flag has changed."
    return "An empty file." if not any(size_bytes != "0 B" for size_bytes in sizes) else f"{sizes_text}."


# Compare what two runs spend their steps on.


def compare_phases(other: RunView, run: RunView) -> None:
    """Show the mean step of both runs, phase by phase; nothing where the probe saw no steps of one."""
    phases = [
        row for row in step_phases(service.current().store, [other.id, run.id], other.id) if len(row["runs"]) == 2
    ]
    if phases:
        rows = [(row["title"], *_cells(row["runs"][other.id], row["runs"][run.id])) for row in phases]
        st.markdown("**Where a step goes**, the mean of all ranks and steps")
        table("phase_differences", ("Phase", f">{other.name}", ">This run", ">Change"), rows)


def _cells(old: dict[str, float], new: dict[str, float]) -> tuple[str, str, str]:
    percent = new.get("change_percent")
    return (
        phase_in_words(old["seconds"]),
        phase_in_words(new["seconds"]),
        UNKNOWN if percent is None else change(percent),
    )
