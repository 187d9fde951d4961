"""TensorBoard's page, adapted to a sandbox, and the pages shown while there is none."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse

from dashboard.security.guard.sandbox import CORS, STORAGE
from dashboard.security.header_values import NO_STORE, source_hash


def sandboxed(page: str, base: str) -> HTMLResponse:
    """TensorBoard's own page, with its files below `base`."""
    added = f'<head><base href="{escape(base)}"><script>{_STAND_INS}</script>'
    page = page.replace("<head>", added, 1).replace("url(/font-roboto/", "url(font-roboto/")
    return HTMLResponse(page, headers=PAGE_HEADERS)


_STAND_INS = (
    """(() => {
  const kept = new Map([["_tb_global_settings", JSON.stringify({autoReload: true})]]);"""
    + STORAGE
    + """  Object.defineProperty(document, "cookie", {configurable: true, get: () => "", set: () => {}});

  const page = new URL(".", location.href), base = new URL(document.baseURI);
  const withPass = (address) => {
    const url = new URL(address, base);
    const ours = url.origin === page.origin && url.pathname.startsWith(page.pathname);
    if (ours && !url.pathname.startsWith(base.pathname)) {
      url.pathname = base.pathname + url.pathname.slice(page.pathname.length);
    }
    return url.href;
  };
  const open = XMLHttpRequest.prototype.open;
  XMLHttpRequest.prototype.open = function (method, address, ...rest) {
    return open.call(this, method, withPass(address), ...rest);
  };
  const fetch = window.fetch;
  window.fetch = (resource, ...rest) =>
    fetch(resource instanceof Request ? resource : withPass(resource), ...rest);
  const RealWorker = window.Worker;
  window.Worker = function (address, options) {
    const source = `importScripts(${JSON.stringify(withPass(address))})`;
    return new RealWorker(URL.createObjectURL(new Blob([source], {type: "text/javascript"})), options);
  };
})();"""
)
"""Substitutes for what a sandboxed page lacks: storage, cookies, and workers from an address. Addresses derived from
the page's own get the pass. TensorBoard's setting to reload data is on from the start."""
_STYLE = """:root{color-scheme:light dark;--text:#1b1f24;--soft:#5b6470;--page:#f6f7f9;--accent:#3b5bdb}
@media(prefers-color-scheme:dark){:root{--text:#e7eaee;--soft:#9aa4b1;--page:#12151a;--accent:#7c93f5}}
body{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,sans-serif}
main{width:min(34rem,calc(100vw - 4rem))}h1{font-size:1.25rem;margin:0 0 .5rem}
p{margin:0 0 1rem;color:var(--soft);overflow-wrap:anywhere}a{color:var(--accent)}
"""
ASK_AGAIN_S = 5
_SOURCES_OF_EVENTS = (
    "Event files come from torch's or tensorboardX's SummaryWriter, or a framework's TensorBoard logger."
)
POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src 'self' {source_hash(_STAND_INS)}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src blob:",
        "base-uri 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "sandbox allow-scripts allow-downloads",
    )
)
"""The sandbox lacks allow-same-origin, so nothing in the page can use the viewer's session."""
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY,
    **NO_STORE,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "unsafe-none",  # a sandboxed page may not ask for more
}
PART_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "unsafe-none",
    "Cross-Origin-Resource-Policy": "cross-origin",
    **CORS,
}
NOTE_POLICY = f"default-src 'none'; style-src {source_hash(_STYLE)}; base-uri 'none'; frame-ancestors 'none'"


def nothing(run_id: str, name: str, has_ended: bool) -> HTMLResponse:
    """The page of a run without event files; while the run is live it opens TensorBoard once there are some."""
    if has_ended:
        text = f"“{name}” has ended without writing any event files."
        return _note(run_id, "No event files", f"{text} {_SOURCES_OF_EVENTS}", 200)
    text = f"“{name}” has not written any event files yet. TensorBoard opens here automatically once it has."
    return _note(run_id, "No event files yet", f"{text} {_SOURCES_OF_EVENTS}", 200, again_s=ASK_AGAIN_S)


def starting(run_id: str, name: str) -> HTMLResponse:
    """The page shown while TensorBoard starts."""
    return _note(run_id, "Starting TensorBoard…", f"It is reading the event files of “{name}”.", 200, again_s=1)


def not_started(run_id: str, reason: str) -> HTMLResponse:
    """The page shown when TensorBoard failed to start."""
    return _note(
        run_id,
        "TensorBoard did not start",
        f"Its last output: {reason}. The run's other pages work without it.",
        status=503,
    )


def no_such_run() -> HTMLResponse:
    """The page for an unknown or deleted run."""
    return _note("", "There is no such run", "It may have been deleted.", status=404)


def _note(run_id: str, title: str, text: str, status: int, again_s: int | None = None) -> HTMLResponse:
    refresh = "" if again_s is None else f'<meta http-equiv="refresh" content="{again_s}">'
    back = f'<a href="/run?id={escape(run_id)}">Back to the run</a>' if run_id else '<a href="/">All runs</a>'
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">{refresh}
<title>{escape(title)} · Rankzero</title><style>{_STYLE}</style></head>
<body><main><h1>{escape(title)}</h1><p>{escape(text)}</p><p>{back}</p></main></body></html>"""
    return HTMLResponse(page, status, headers={"Content-Security-Policy": NOTE_POLICY, **NO_STORE})
