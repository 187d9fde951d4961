"""The page where people without a session paste their token."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from html import escape

_STYLE = """
:root{color-scheme:light dark;--text:#1b1f24;--soft:#5b6470;--page:#f6f7f9;--card:#fff;--line:#d9dde3;--accent:#3b5bdb}
@media(prefers-color-scheme:dark){:root{--text:#e7eaee;--soft:#9aa4b1;--page:#12151a;--card:#1a1e25;--line:#2d343f;
--accent:#7c93f5}}
body{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,sans-serif}
form{width:min(26rem,calc(100vw - 4rem));background:var(--card);border:1px solid var(--line);border-radius:12px;
padding:2rem}
h1{font-size:1.25rem;margin:0 0 .5rem}p{margin:0 0 1.25rem;color:var(--soft);font-size:.925rem}
label{display:block;font-size:.875rem;margin-bottom:.25rem}
input{box-sizing:border-box;width:100%;font:inherit;padding:.6rem .75rem;border:1px solid var(--line);border-radius:8px;
background:var(--page);color:inherit}
button{margin-top:1rem;width:100%;font:inherit;font-weight:600;padding:.6rem;border:0;border-radius:8px;
background:var(--accent);color:var(--card);cursor:pointer}
code{font-size:.875em;color:var(--text)}.wrong{color:#d6336c}
"""
STYLE_HASH = "sha256-" + b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
"""Lets the content security policy allow this style and no other."""


def login_page(next_path: str, wrong: bool = False) -> str:
    """The page as HTML; it needs nothing else from the server."""
    note = '<p class="wrong" role="alert">That token is not right.</p>' if wrong else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Sign in · Rankzero</title><style>{_STYLE}</style></head>
<body><form method="post" action="/login"><h1>Rankzero</h1>
<p>Open the address printed when the dashboard started, or paste the token that
<code>rankzero token</code> prints on the server.</p>{note}
<input type="hidden" name="next" value="{escape(next_path, quote=True)}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button type="submit">Sign in</button></form></body></html>"""
