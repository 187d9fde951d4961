"""The place on the Launch page where a file with code is chosen or dropped."""

from __future__ import annotations

from collections.abc import Callable

from streamlit.components.v2 import component

from dashboard.components.live_run import loader, text_of
from domain.text.formats import size

_upload = component(
    "rankzero.upload_code",
    css=text_of("dashboard.components", "code_upload/upload_code.css"),
    js=loader("code_upload/upload_code.js"),
)


def upload_code(name: str, limit_bytes: int, on_uploaded: Callable[[], None], key: str) -> None:
    """Sends the file by itself; then `uploaded` stands in the session under `key`."""
    data = {"name": name, "limit_bytes": limit_bytes, "limit": size(limit_bytes)}
    _upload(data=data, key=key, on_uploaded_change=on_uploaded)
