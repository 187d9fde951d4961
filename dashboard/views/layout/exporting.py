"""A menu of the files that runs can be exported as."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import streamlit as st

from domain.choices import ExportFormat

FORMATS = {
    ExportFormat.HTML: ("Report", "Curves, differences and notes in one page that opens without Rankzero"),
    ExportFormat.CSV: ("Points as CSV", "Every point of every series"),
    ExportFormat.PARQUET: ("Points as Parquet", "Every point of every series"),
    ExportFormat.JSON: ("Points as JSON", "Every point of every series"),
    ExportFormat.ARCHIVE: (
        "Archive (zip)",
        "Everything, with checkpoints and code, for another installation",
    ),
}


def export_menu(run_ids: Sequence[str], have_ended: bool) -> None:
    """Show links to the server's route; an archive is offered of runs that have ended."""
    with st.popover("Export", icon=":material/ios_share:", type="tertiary", key="export"):
        for kind, (title, explanation) in FORMATS.items():
            if kind != ExportFormat.ARCHIVE or have_ended:
                url = f"/api/export?{urlencode({'runs': ','.join(run_ids), 'format': str(kind)})}"
                key = f"export_{kind}"
                st.link_button(title, url, help=explanation, type="tertiary", width="stretch", key=key)
