"""The page on which a signed-in person allows a command line that `rankzero login` started, or denies it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from types import MappingProxyType

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dashboard.security.header_values import NO_STORE
from dashboard.security.identity.people import People
from dashboard.security.limits import TryLater
from dashboard.security.plain_pages import PLAIN_POLICY, note, plain_page
from dashboard.security.signing_in.device_logins import DeviceLogins
from dashboard.security.signing_in.login import form_of
from db import acting
from db.people.login_requests import LoginRequestView, NoSuchRequest, shown
from domain.people.rights import Denied
from domain.people.tokens import GRANTS, TokenWanted
from domain.text import formats


class DevicePage:
    """GET and POST /device."""

    def __init__(self, logins: DeviceLogins, people: People) -> None:
        self._logins, self._people = logins, people

    async def show(self, request: Request) -> Response:
        """The request with the code of the address; a form for the code where it has none."""
        code = request.query_params.get("code", "")
        if not code:
            return _page(_code_form())
        return await self._answer(lambda: self._asked(code))

    async def decide(self, request: Request) -> Response:
        """Allow the command line, or deny it."""
        form = await form_of(request)
        code = form.get("code", "")
        return await self._answer(lambda: self._decided(code, form.get("answer", "")))

    def _asked(self, code: str) -> str:
        request = self._logins.waiting(code)
        return _question(request, self._people.doubt_about(request.terms.project, "token"))

    def _decided(self, code: str, answer: str) -> str:
        if answer == "allow":
            token = self._logins.allow(code)
            return _done(f"{token.name} is allowed", f"It acts as {token.user} until you type `rankzero logout` there.")
        self._logins.refuse(code)
        return _done("Denied", "The command line gets no token.")

    async def _answer(self, make: Callable[[], str]) -> Response:
        try:
            return _page(await run_in_threadpool(make))
        except NoSuchRequest as error:
            return _page(_code_form(str(error)), 404)
        except TryLater as error:
            return _page(_code_form(str(error)), error.status, error.headers)
        except Denied as error:
            return _page(_code_form(str(error)), 403)


def _page(content: str, status: int = 200, more: Mapping[str, str] = MappingProxyType({})) -> Response:
    headers = {"Content-Security-Policy": PLAIN_POLICY, **NO_STORE, **more}
    return HTMLResponse(plain_page("Allow a machine", content), status, headers)


def _code_form(problem: str = "") -> str:
    return f"""<h1>Allow a machine</h1>{note(problem)}
<p>Type the code that <code>rankzero login</code> shows in the terminal.</p>
<form method="get" action="/device"><label for="code">Code</label>
<input id="code" name="code" autocomplete="off" autocapitalize="characters" spellcheck="false" autofocus required>
<button type="submit">Continue</button></form>"""


def _question(request: LoginRequestView, doubt: str | None) -> str:
    code, terms = escape(shown(request.code)), request.terms
    place = f" from {escape(request.address)}" if request.address else ""
    return f"""<h1>Allow this machine?</h1>
<p>A command line on <strong>{escape(terms.name)}</strong>{place} asks to act as
<strong>{escape(acting.rights().by or "")}</strong>. Continue only if you started <code>rankzero login</code>
just now, and its terminal shows this code:</p>
<p class="code">{code}</p>
<p>{escape(_grant(terms))}.</p>{note(doubt or "")}
<form method="post" action="/device"><input type="hidden" name="code" value="{code}">
<button type="submit" name="answer" value="allow">Allow</button>
<button type="submit" name="answer" value="refuse" class="quiet">Deny</button></form>"""


def _grant(terms: TokenWanted) -> str:
    where = f", in project {terms.project} alone," if terms.project else ""
    end = "Until you revoke it" if terms.lasts_s is None else f"For {_time(terms.lasts_s)}"
    return f"{end}{where} it may {GRANTS[terms.scope]} (scope {terms.scope})"


def _time(seconds: float) -> str:
    days = round(seconds / 86_400)
    return formats.plural(days, "day") if days else formats.duration_words(seconds)


def _done(title: str, sentence: str) -> str:
    words = escape(sentence).replace("`rankzero logout`", "<code>rankzero logout</code>")
    return f"<h1>{escape(title)}</h1><p>{words} You may close this tab.</p>"
