"""The Code tab: the origin of a run's code, its files, and a comparison with another run."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import PurePosixPath

import streamlit as st

from dashboard.compare import runs
from dashboard.service import service
from dashboard.snapshots.archive import Archive
from dashboard.snapshots.differences import quoted
from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.origin import LeftBehind, Origin
from dashboard.views.layout import style
from dashboard.views.run import compare
from db.runs.snapshots import SnapshotView
from domain.spec import RunSpec
from domain.text.formats import ago, as_text, plural, size
from domain.views import RunView


@style.quiet_without_store
def code(run: RunView) -> None:
    """Show the run's code and its comparison with another run."""
    snapshots = service.current().snapshots
    sha256 = run.spec.snapshot
    snapshot = snapshots.find(sha256) if sha256 else None
    if snapshot is None:
        st.markdown(as_text(_without_snapshot(run.spec)))
    else:
        _facts(snapshot)
        _files(run, snapshot, snapshots.archive(snapshot.sha256))
    compare.compare(run)


SHOWN_BYTES = 100_000
LONGEST_LINE = 2_000
LIST_PX = 420
UNSCROLLED = 10
"""Number of files or lines up to which a list is shown in full height."""
MOST_LEFT_OUT = 6
LANGUAGES = {
    ".py": "python", ".pyi": "python", ".sh": "bash", ".bash": "bash", ".yaml": "yaml", ".yml": "yaml",
    ".toml": "toml", ".json": "json", ".ipynb": "json", ".md": "markdown", ".ini": "ini", ".cfg": "ini",
    ".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".js": "javascript",
    ".html": "html", ".css": "css", ".sql": "sql", ".rs": "rust", ".go": "go", ".diff": "diff",
}  # fmt: skip


def _without_snapshot(spec: RunSpec) -> str:
    if runs.is_recipe(spec):
        return f"The recipe {spec.target}, which ships with Rankzero ({version('rankzero')} is installed here)."
    if spec.snapshot:
        return f"The code of this run, snapshot {spec.snapshot[:12]}, is no longer on the server."
    if spec.workdir:
        return f"{spec.target} ran in place, in {spec.workdir}; its code was not stored."
    return f"{spec.target} ran from its node's disk; its code was not stored."


def _facts(snapshot: SnapshotView) -> None:
    """Show the code's origin, size and hash, with its download."""
    origin = Origin.model_validate(snapshot.origin) if snapshot.origin else None
    with st.container(horizontal=True, vertical_alignment="center", key="code_facts"):
        with st.container():
            st.markdown(as_text(_origin_sentence(origin)))
            st.caption(f"Stored {ago(snapshot.created_at, service.current().clock())} · SHA-256 `{snapshot.sha256}`")
        st.link_button(
            "Download code", f"/api/snapshots/{snapshot.sha256}/archive", icon=":material/download:",
            help=f"A tar archive, {size(snapshot.size_bytes)}", width="content", key="download_code",
        )  # fmt: skip
    if origin and origin.left_out:
        st.caption(as_text(_left_out(origin.left_out)))


def _origin_sentence(origin: Origin | None) -> str:
    if origin is None:
        return "The origin of this code is unknown."
    if origin.kind == "upload":
        return f"{origin.location}, uploaded in the browser."
    location = f"{origin.location} on {origin.host}" if origin.host else origin.location
    return f"{location}: {origin.version}." if origin.version else f"{location}."


def _left_out(left_out: list[LeftBehind]) -> str:
    names = [_left_out_name(name) for name in left_out[:MOST_LEFT_OUT]]
    remaining = len(left_out) - len(names)
    names += [plural(remaining, "more name")] if remaining else []
    return f"Left out: {', '.join(names)}."


def _left_out_name(left_out: LeftBehind) -> str:
    reasons = {"ignored": "ignored by git", "outside": "a link out of the folder", "unreadable": "unreadable"}
    if left_out.why != "ignored":
        return f"{left_out.name} ({reasons[left_out.why]})"
    amount = f"{'over ' if left_out.at_least else ''}{size(left_out.size_bytes)}"
    return f"{left_out.name} ({amount}, {reasons[left_out.why]})"


def _files(run: RunView, snapshot: SnapshotView, archive: Archive) -> None:
    """Show all files in a list, and the selected one; the archive is read only while this is open."""
    title = f"{plural(snapshot.files, 'file')}, {size(snapshot.size_bytes)}"
    with st.expander(title, key=f"files_{run.id}", icon=":material/folder:", on_change="rerun") as opened:
        if not opened.open:
            return
        try:
            sizes = dict(sorted(archive.files().items()))
        except CodeRefused:
            st.caption("The archive can no longer be read.")
            return
        names = list(sizes)
        listed, shown = st.columns([1, 2])
        with listed:
            chosen = _chosen(names, list(sizes.values()), run)
        with shown:
            if chosen is not None:
                _file(archive, chosen, sizes[chosen])


def _chosen(names: list[str], sizes: list[int], run: RunView) -> str | None:
    """Return the selected file, at first the entry of the run."""
    if not names:
        return None
    entry = names.index(run.spec.entry) if run.spec.entry in names else 0
    table = st.dataframe(
        {"File": [quoted(name) for name in names], "Bytes": sizes},
        key=f"file_{run.id}", hide_index=True, height="content" if len(names) <= UNSCROLLED else LIST_PX,
        column_config={
            "Bytes": st.column_config.NumberColumn(format="localized", width=80),
        },
        selection_mode="single-row", on_select="rerun", selection_default={"selection": {"rows": [entry]}},
    )  # fmt: skip
    rows = table["selection"]["rows"]
    return names[rows[0]] if rows and rows[0] < len(names) else names[entry]


def _file(archive: Archive, name: str, size_bytes: int) -> None:
    content = archive.read(name, SHOWN_BYTES)
    if content is None:
        st.caption("This file cannot be read.")
        return
    st.caption(as_text(f"{quoted(name)}, {size(size_bytes)}"))
    if b"\0" in content:
        st.caption("This file is binary; the download contains it.")
    elif not content:
        st.caption("This file is empty.")
    else:
        text = compare.within(content.decode(errors="replace"), LONGEST_LINE)
        st.code(
            text,
            language=language_of(name),
            line_numbers=True,
            height=LIST_PX if text.count("\n") > UNSCROLLED else "content",
        )
        if size_bytes > len(content):
            st.caption(f"The first {size(SHOWN_BYTES)} are shown; the download contains the whole file.")


def language_of(name: str) -> str | None:
    """Return the language for highlighting a file, by its name."""
    return LANGUAGES.get(PurePosixPath(name).suffix.lower())
