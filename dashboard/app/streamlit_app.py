"""The Streamlit pages as an ASGI application with our options, whatever directory the dashboard starts in."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.web import bootstrap

HERE = Path(__file__).parents[1]
SCRIPT = HERE / "views" / "app.py"
THEME = HERE / "views" / ".streamlit" / "config.toml"
UPLOAD_LIMIT_MIB = 1


def pages(host: str, port: int) -> st.App:
    """The pages; enter `.lifespan()` before the first request."""
    bootstrap.load_config_options({**_theme(), **_options(host, port)})
    return st.App(SCRIPT)


def _options(host: str, port: int) -> dict[str, Any]:
    return {
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "server.maxUploadSize": UPLOAD_LIMIT_MIB,
        "server.baseUrlPath": "",
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": "false",
        "global.developmentMode": False,
        # Python collects garbage by itself: a full collection after every rerun took half of the pages' time.
        "runner.postScriptGC": False,
    }


def _theme() -> dict[str, Any]:
    return dict(_flat(tomllib.loads(THEME.read_text()))) if THEME.exists() else {}


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
