"""Pages without scripts or Streamlit: the login form, and the page for unknown addresses."""

from __future__ import annotations

from html import escape

from dashboard import colours
from dashboard.colours import ICON
from dashboard.security.sandbox import source_hash


def plain_page(title: str, content: str) -> str:
    """A page with this title; `content` is HTML with all outside values escaped."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{escape(title)} · Rankzero</title><link rel="icon" href="{ICON}"><style>{_STYLE}</style></head>
<body><main>{content}</main></body></html>"""


_STYLE = (
    colours.variables()
    + """
body{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,sans-serif}
main{box-sizing:border-box;width:min(30rem,calc(100vw - 2rem));background:var(--card);border:1px solid var(--line);
border-radius:12px;padding:2rem}
h1{font-size:1.25rem;line-height:1.3;margin:0 0 .5rem}p{margin:0 0 1.25rem;font-size:.925rem;overflow-wrap:anywhere}
nav{display:flex;gap:1.25rem;flex-wrap:wrap}a{color:var(--accent);font-weight:600}
label{display:block;font-size:.875rem;margin-bottom:.25rem}
input{box-sizing:border-box;width:100%;font:inherit;padding:.6rem .75rem;border:1px solid var(--text);
border-radius:8px;background:var(--page);color:inherit}
button{margin-top:1rem;width:100%;font:inherit;font-weight:600;padding:.6rem;border:0;border-radius:8px;
background:var(--accent);color:var(--page);cursor:pointer}
code{font-size:.875em}[role=alert]{border-left:4px solid #d6336c;padding-left:.75rem;font-weight:600}
[role=status]{border-left:4px solid var(--accent);padding-left:.75rem}
"""
)
PLAIN_POLICY = (
    f"default-src 'none'; style-src {source_hash(_STYLE)}; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


def login_page(next_path: str, problem: str = "", signed_out: bool = False) -> str:
    """The form for the token."""
    note = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    if signed_out:
        note = '<p role="status">You are signed out, and so is every other tab of this browser.</p>'
    return plain_page(
        "Sign in",
        f"""<h1>Rankzero</h1>{note}
<p>Open the address printed when the dashboard started, or paste the token that
<code>rankzero token</code> prints on the server.</p>
<form method="post" action="/login">
<input type="hidden" name="next" value="{escape(next_path, quote=True)}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button type="submit">Sign in</button></form>""",
    )


def shared_link_page(sentence: str, advice: str) -> str:
    """The page of a link to runs that shows none."""
    return plain_page("Shared runs", f"<h1>{escape(sentence)}</h1><p>{escape(advice)}</p>")


def not_found_page(path: str) -> str:
    """The page for an unknown address."""
    shown = path if len(path) <= 80 else path[:79] + "…"
    return plain_page(
        "No such page",
        f"""<h1>There is no such page</h1>
<p>There is nothing at <code>{escape(shown)}</code>. The address may be mistyped, or belong to another version.</p>
<nav aria-label="Pages"><a href="/">Runs</a><a href="/launch">Launch</a><a href="/nodes">Nodes</a></nav>""",
    )
