"""Pages without scripts or Streamlit: signing in, accepting an invitation, and the page for unknown addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from dashboard import colours
from dashboard.colours import ICON
from dashboard.security.header_values import source_hash
from domain.people.accounts import SHORTEST_PASSWORD


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
h1{font-size:1.25rem;line-height:1.3;margin:0 0 .5rem;overflow-wrap:anywhere}
p{margin:0 0 1.25rem;font-size:.925rem;overflow-wrap:anywhere}
nav{display:flex;gap:1.25rem;flex-wrap:wrap}a{color:var(--accent);font-weight:600}
label{display:block;font-size:.875rem;margin-bottom:.25rem}
input{box-sizing:border-box;width:100%;font:inherit;padding:.6rem .75rem;border:1px solid var(--text);
border-radius:8px;background:var(--page);color:inherit}
input[type=checkbox]{width:auto;margin:0 .4rem 0 0;accent-color:var(--accent)}form p{margin:1rem 0 0}
button{margin-top:1rem;width:100%;font:inherit;font-weight:600;padding:.6rem;border:0;border-radius:8px;
background:var(--accent);color:var(--page);cursor:pointer}
button.quiet{background:none;color:inherit;border:1px solid var(--line)}
.code{font:600 1.75rem/1.2 ui-monospace,monospace;letter-spacing:.12em;text-align:center}
label:not(:first-of-type){margin-top:.75rem}
a.button{display:block;margin:0 0 1rem;padding:.55rem;border:1px solid var(--accent);border-radius:8px;
text-align:center;text-decoration:none}form+a.button,form+p{margin-top:1rem}
details{margin-top:1.25rem;font-size:.925rem}summary{cursor:pointer;color:var(--accent)}details p{margin-top:.75rem}
main>:last-child{margin-bottom:0}
code{font-size:.875em}[role=alert]{border-left:4px solid #d6336c;padding-left:.75rem;font-weight:600}
[role=status]{border-left:4px solid var(--accent);padding-left:.75rem}
"""
)
PLAIN_POLICY = (
    f"default-src 'none'; style-src {source_hash(_STYLE)}; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


@dataclass(frozen=True)
class SignInWays:
    """How people sign in here, beside the token."""

    has_passwords: bool = False
    provider: str | None = None
    """The name of the provider, on its button."""


SIGNED_OUT = "You are signed out, and so is every other tab of this browser."
ENDED = "Your session has ended. Sign in to continue where you were: your entries on the Launch page are kept."


def login_page(
    next_path: str,
    problem: str = "",
    news: str = "",
    person: str = "",
    ways: SignInWays = SignInWays(),
    is_by_token: bool = False,
) -> str:
    """The page with the forms for a password and for the token, and the provider's button; `person` was typed.

    `is_by_token`: the token's form is the one that is used."""
    target = escape(next_path, quote=True)
    parts = [_password_form(target, escape(person, quote=True), not is_by_token)] if ways.has_passwords else []
    if ways.provider:
        parts.append(provider_button(ways.provider, f"next={quote(next_path, safe='')}"))
    token = _token_form(target, has_focus=is_by_token or not parts)
    if parts:
        opened = " open" if is_by_token else ""
        token = f"<details{opened}><summary>Sign in with the server's token</summary>{token}</details>"
    return plain_page("Sign in", "".join(["<h1>Rankzero</h1>", note(news, "status") or note(problem), *parts, token]))


def note(sentence: str, role: str = "alert") -> str:
    """A sentence above a form, on what is wrong or, as a `status`, new; nothing where there is none."""
    return f'<p role="{role}">{escape(sentence)}</p>' if sentence else ""


def _password_form(target: str, person: str, has_focus: bool) -> str:
    focus = " autofocus" if has_focus else ""
    first, second = ("", focus) if person else (focus, "")
    return f"""<form method="post" action="/login"><input type="hidden" name="next" value="{target}">
<label for="person">E-mail or name</label>
<input id="person" name="person" value="{person}" autocomplete="username" autocapitalize="none" spellcheck="false"
required{first}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password"{second} required>
<button type="submit">Sign in</button></form>
<p>No account, or a forgotten password? Ask an admin of this dashboard for a link.</p>"""


def provider_button(provider: str, query: str) -> str:
    """The link to the provider; a form would not be let go there by the page's policy."""
    return f'<a class="button" href="/login/provider?{escape(query)}">Sign in with {escape(provider)}</a>'


def _token_form(target: str, has_focus: bool) -> str:
    focus = " autofocus" if has_focus else ""
    return f"""<p>Open the address printed when the dashboard started, or paste the token that
<code>rankzero token</code> prints on the server.</p>
<form method="post" action="/login"><input type="hidden" name="next" value="{target}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password"{focus} required>
<button type="submit">Sign in</button></form>"""


_NEW_PASSWORD = f"""<label for="password">Password, of at least {SHORTEST_PASSWORD} characters</label>
<input id="password" name="password" type="password" minlength="{SHORTEST_PASSWORD}" autocomplete="new-password"
autofocus required>
"""


def invitation_page(
    email: str,
    name: str,
    to: str,
    problem: str = "",
    provider: str | None = None,
    secret: str = "",
    visitor: str | None = None,
) -> str:
    """The form with which an invited person makes an account; `to` says what it opens, `visitor` who is signed in."""
    button = ""
    if provider:
        button = provider_button(provider, f"invitation={quote(secret, safe='')}")
        button += "<p>Or choose a name and a password for this dashboard:</p>"
    return plain_page(
        "Invitation",
        rf"""<h1>Join Rankzero</h1>{note(problem) or _leaving(visitor)}
<p>You are invited as <strong>{escape(email)}</strong>, {escape(to)}.</p>{button}
<form method="post"><input type="hidden" name="email" autocomplete="username" value="{escape(email, quote=True)}">
<label for="name">Name others see</label>
<input id="name" name="name" value="{escape(name, quote=True)}" maxlength="40" pattern="[a-z0-9][a-z0-9._\-]*"
title="small letters, digits, . _ -" autocapitalize="none" spellcheck="false" required>
{_NEW_PASSWORD}<button type="submit">Create account</button></form>""",
    )


def _leaving(visitor: str | None) -> str:
    """A sentence on how using a link ends the session of the person who opens it."""
    if visitor is None:
        return ""
    sentence = f"You are signed in as {visitor}. The link is for the person named below: using it here signs you out."
    return note(sentence, "status")


def password_page(name: str, tokens: Sequence[str] = (), problem: str = "", visitor: str | None = None) -> str:
    """The form that replaces a forgotten password, and may revoke tokens; `visitor` is who is signed in."""
    revoking = f"""<p><label for="revoke"><input id="revoke" name="revoke" type="checkbox"> Also revoke my access
tokens: {escape(", ".join(tokens))}. Do so if someone else may have had access; programs that use them then need new
ones.</label></p>
"""
    return plain_page(
        "New password",
        f"""<h1>New password</h1>{note(problem) or _leaving(visitor if visitor != name else None)}
<p>You are <strong>{escape(name)}</strong>. All browsers in which you are signed in will be signed out.</p>
<form method="post"><input type="hidden" name="name" autocomplete="username" value="{escape(name, quote=True)}">
{_NEW_PASSWORD}{revoking if tokens else ""}<button type="submit">Set my password</button></form>""",
    )


ASK_ADMIN = "Sign in if you have an account; else ask an admin for a new link."
"""What to do where an invitation is of no use."""


def sentence_page(title: str, sentence: str, advice: str, visitor: str | None = None) -> str:
    """A page that says one thing, and what to do: to sign in, but for a visitor who is."""
    way = '<a href="/login">Sign in</a>'
    if visitor is not None:
        advice, way = f"You are signed in as {visitor}.", '<a href="/">All runs</a>'
    return plain_page(title, f"<h1>{escape(sentence)}</h1><p>{escape(advice)}</p><nav>{way}</nav>")


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
