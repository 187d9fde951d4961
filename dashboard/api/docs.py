"""The API's documentation page, rendered from the OpenAPI document without files of other sites."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

router = APIRouter(prefix="/api")
_STYLE = """
:root{color-scheme:light dark}body{font:15px/1.55 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:2.5rem;text-transform:capitalize}section{border-top:1px solid #8884;padding:.75rem 0}
code{font-size:.9em}.m{display:inline-block;min-width:4.5em;font-weight:700}p{margin:.25rem 0}
ul{margin:.25rem 0;padding-left:1.5rem}small{opacity:.75}
"""


@router.get("/docs", include_in_schema=False)
async def page(request: Request) -> Response:
    """Every route with its description and parameters."""
    return HTMLResponse("".join(_page(request.app.openapi())))


def _page(document: dict[str, Any]) -> Iterator[str]:
    title = escape(document["info"]["title"])
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title} API</title>'
    yield f"<style>{_STYLE}</style><h1>{title} API</h1>"
    yield "<p>Send the login token as <code>Authorization: Bearer …</code>. "
    yield 'For programs: <a href="/api/openapi.json">openapi.json</a>.</p>'
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            tag = (route.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append("".join(_route(path, method, route)))
    for tag, routes in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>"
        yield from routes


def _route(path: str, method: str, route: dict[str, Any]) -> Iterator[str]:
    yield f'<section><p><span class="m">{escape(method.upper())}</span><code>{escape(path)}</code></p>'
    yield f"<p>{escape(route.get('description', ''))}</p>"
    parameters = [p for p in route.get("parameters", []) if p["in"] == "query"]
    if parameters:
        items = (
            f"<li><code>{escape(p['name'])}</code>{' (required)' if p.get('required') else ''} "
            f"<small>{escape(p.get('description', ''))}</small></li>"
            for p in parameters
        )
        yield f"<ul>{''.join(items)}</ul>"
    for content in route.get("requestBody", {}).get("content", {}).values():
        schema = content["schema"]
        name = schema.get("$ref", "").rpartition("/")[2] or schema.get("title", "an object")
        yield f"<p>Body: <code>{escape(name)}</code></p>"
    yield "</section>"
