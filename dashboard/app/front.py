"""Streamlit's pages and files with our options, the page that browsers load first, and unknown addresses."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import streamlit as st
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit.web import bootstrap

from dashboard import colours
from dashboard.app.assets import Assets, PackedFile, StreamlitsScripts
from dashboard.colours import ICON, LOGO
from dashboard.errors import error_body
from dashboard.page_titles import IN_BAR, TITLES
from dashboard.security.header_values import NO_STORE
from dashboard.security.plain_pages import PLAIN_POLICY, not_found_page


class Front:
    """Routes for every address that no other route serves."""

    def __init__(self, entry: EntryPage, streamlit: ASGIApp) -> None:
        self._pages = {path: PackedFile(entry.html(path).encode()) for path in TITLES}
        self._streamlit = streamlit
        self._scripts = StreamlitsScripts()

    def install(self, app: FastAPI) -> None:
        """Add the routes; call it after all others have been added."""
        for path in TITLES:
            app.add_route(path, self._show, methods=["GET", "HEAD"], include_in_schema=False)
        for path in MOVED:
            app.add_route(path, _redirect_moved, methods=["GET", "HEAD"], include_in_schema=False)
        self._api = Router(list(app.router.routes))
        app.mount("/", self._serve_others)

    async def _show(self, request: Request) -> Response:
        return self._pages[request.url.path].answer(request, "page.html", NO_STORE)

    async def _serve_others(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (scope["path"] + "/").startswith("/api/"):  # 404, or 405 when the path has another method
            await self._api(scope, receive, send)
        elif self._scripts.know(scope):
            await (await self._scripts.serve(Request(scope)))(scope, receive, send)
        elif scope["type"] != "http" or scope["path"].startswith(STREAMLITS_OWN):
            await self._streamlit(scope, receive, send)
        else:
            await _not_found(Request(scope))(scope, receive, send)


STREAMLITS_OWN = ("/_stcore/", "/static/", "/media/", "/component/")
"""Prefixes of Streamlit's scripts, WebSocket and files."""
MOVED = {"/runs": "/", "/index.html": "/"}


async def _redirect_moved(request: Request) -> Response:
    return _redirect(request, MOVED[request.url.path])


def _not_found(request: Request) -> Response:
    path = request.url.path
    if path.rstrip("/") in TITLES.keys() | MOVED.keys():
        return _redirect(request, path.rstrip("/"))
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse(error_body(None, f"There is nothing at {path}."), 404)
    headers = {"Content-Security-Policy": PLAIN_POLICY, **NO_STORE}
    return HTMLResponse(not_found_page(path), 404, headers)


def _redirect(request: Request, path: str) -> Response:
    return RedirectResponse(f"{path}?{request.url.query}" if request.url.query else path, 308)


# The page that browsers load first: Streamlit's scripts, with our colours, title and frame shown before they run.

_SHIPPED = Path(st.__file__).parent / "static" / "index.html"
_STYLE = (
    colours.variables()
    + """
html,body{background:var(--page);color:var(--text);margin:0}
#frame{position:fixed;inset:0;z-index:1;background:var(--page);font:15px/1.5 "Source Sans",system-ui,sans-serif}
#frame header,#frame nav{display:flex;align-items:center;gap:.25rem}
#frame header{box-sizing:border-box;height:3.25rem;padding:0 1.75rem;border-bottom:1px solid var(--line)}
#frame .logo{display:flex;align-items:center;gap:.4rem;padding:0;margin-right:.75rem;font-weight:650;
font-size:1.1rem;color:var(--accent)}
#frame a{color:inherit;text-decoration:none;padding:.25rem .6rem .25rem 1.9rem;border-radius:.45rem}
#frame a[aria-current]{background:var(--card);font-weight:600}
#frame main{padding:1.5rem 1.75rem;display:grid;gap:1rem}
#frame i{display:block;height:5.5rem;border-radius:.45rem;background:var(--card)}
#frame i:first-of-type{height:2.25rem}#frame i:last-of-type{height:40vh}
#frame h1{position:absolute;clip-path:inset(50%);height:1px;overflow:hidden}
#frame main{animation:appear 0s .3s backwards}
[data-opened] #frame :is(header,h1){visibility:hidden}
[data-settled] #frame,body:has(.st-key-run_head,[role=dialog],[data-testid=stException]) #frame{display:none}
[data-testid=stAppSkeleton]{visibility:hidden}
@media(max-width:640px){#frame header,#frame main{padding-left:.75rem;padding-right:.75rem}
#frame header{gap:0;padding-left:.4rem;padding-right:.4rem}#frame a{padding:.25rem .35rem;font-size:.86rem}
#frame .logo{display:none}}
"""
)


class EntryPage:
    """The HTML around Streamlit's pages; built once, except for the title."""

    def __init__(self, assets: Assets) -> None:
        self._start = assets.url("entry/start.js")
        self._scripts, styles = _streamlits_own(_SHIPPED.read_text(encoding="utf-8"))
        ours = files("dashboard.components").joinpath("entry/pages.css").read_text(encoding="utf-8")
        self._styles = f"{styles}\n<style>{ours}</style>"

    def html(self, path: str) -> str:
        """The HTML for one of the paths in TITLES."""
        title = TITLES[path]
        themes = json.dumps({name: colours.theme(name) for name in ("light", "dark")}).replace("<", "\\u003c")
        return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title} · Rankzero</title><link rel="icon" href="{ICON}"><style>{_STYLE}</style>
<script type="application/json" id="themes">{themes}</script>
<script defer src="{self._start}"></script>
{self._scripts}</head>
<body><div id="root"></div><p id="away" role="status"></p>
<div id="loading" role="progressbar" aria-label="Loading"></div>
<div id="frame"><header><span class="logo">{LOGO}</span>{_links(path)}</header>
<main aria-busy="true"><h1>{title}</h1><noscript><p>These pages need JavaScript. Without it, use the command
<code>rankzero</code>, which can do everything these pages do.</p></noscript><i></i><i></i><i></i></main></div>
{self._styles}</body></html>"""


def _links(path: str) -> str:
    current = ' aria-current="page"'
    links = (f'<a href="{to}"{current if to == path else ""}>{TITLES[to]}</a>' for to in IN_BAR)
    return f'<nav aria-label="Pages">{"".join(links)}</nav>'


def _streamlits_own(page: str) -> tuple[str, str]:
    """The tags of Streamlit's scripts and of its styles; the styles go last, so as not to delay the first paint."""
    parser = _Tags()
    parser.feed(page)
    if not any(tag.startswith("<script") for tag in parser.scripts):
        raise RuntimeError(f"{_SHIPPED} is not the page that this version of Rankzero expects.")
    return "\n".join(parser.scripts), "\n".join(parser.styles)


class _Tags(HTMLParser):
    """Collects the scripts and styles of Streamlit's page, with addresses that work below every path."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.styles: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect a module script, a preload or a style."""
        attributes = dict(attrs)
        if tag == "script" and attributes.get("type") == "module" and attributes.get("src"):
            self.scripts.append(f'<script type="module" crossorigin src="{_address(attributes["src"])}"></script>')
        elif tag == "link" and attributes.get("rel") in ("modulepreload", "preload"):
            preload = " ".join(
                f'{name}="{escape(attributes[name] or "")}"' for name in ("rel", "as", "type") if name in attributes
            )
            self.scripts.append(f'<link {preload} crossorigin href="{_address(attributes.get("href"))}">')
        elif tag == "link" and attributes.get("rel") == "stylesheet":
            self.styles.append(f'<link rel="stylesheet" crossorigin href="{_address(attributes.get("href"))}">')


def _address(relative: str | None) -> str:
    return "/" + escape((relative or "").removeprefix("./").lstrip("/"), quote=True)


# The Streamlit pages as an ASGI application with our options, whatever directory the dashboard starts in.

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
