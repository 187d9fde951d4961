"""The Streamlit pages as an ASGI application with options of ours, whatever directory we are started from."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit.web import bootstrap

HERE = Path(__file__).parent
SCRIPT = HERE / "views" / "app.py"
THEME = HERE / "views" / ".streamlit" / "config.toml"
UPLOAD_LIMIT_MIB = 1


def pages(host: str, port: int) -> st.App:
    """The pages; enter `.lifespan()` before the first request."""
    bootstrap.load_config_options({**_theme(), **_options(host, port)})
    return st.App(SCRIPT)


class WithoutApi:
    """The pages, which know an answer to every address, but for those of the API: there it is 404 or 405 in JSON."""

    def __init__(self, pages: ASGIApp, api: ASGIApp) -> None:
        self._pages, self._api = pages, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to who must answer it."""
        is_api = scope["type"] != "lifespan" and (scope["path"] + "/").startswith("/api/")
        await (self._api if is_api else self._pages)(scope, receive, send)


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
    }


def _theme() -> dict[str, Any]:
    return dict(_flat(tomllib.loads(THEME.read_text()))) if THEME.exists() else {}


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
