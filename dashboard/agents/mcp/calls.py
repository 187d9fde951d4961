"""Calls of tools: refused where they are too many, written down, checked, and answered or refused with a sentence."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from dashboard.agents.answers import TextFence, clean, cut
from dashboard.agents.own_api import OwnApi, ToolRefused
from dashboard.agents.tool import Arguments, Call, Tool
from dashboard.agents.tools import acting as acting_tools
from dashboard.agents.tools import cluster, compare, curves, launching, logs, ranks, runs, waiting
from dashboard.errors import describe
from dashboard.security.limits import RateLimit
from dashboard.security.proxies import shown_url
from dashboard.service.service import Service
from db import acting
from db.engine import StoreGone
from db.people import audit
from domain.masking.masking import masked_text

log = logging.getLogger("rankzero")
TOOLS: dict[str, Tool] = {
    tool.name: tool
    for module in (runs, curves, logs, compare, ranks, cluster, waiting, launching, acting_tools)
    for tool in module.TOOLS
}
MOST_A_MINUTE, MOST_AT_ONCE = 60, 16
"""Calls of one token."""
LONGEST_ERROR, LONGEST_NOTED = 1000, 300
"""Bytes of a refusal, and of an argument in the audit log."""
WRITTEN_DOWN = ("run", "runs", "filter", "series", "pattern", "until", "action", "like", "key")
"""The arguments that the audit log has; a spec may hold secrets, and a launch has an entry of its own."""


class Calls:
    """All calls of tools at one dashboard."""

    def __init__(self, service: Service, now: Callable[[], float]) -> None:
        self._service = service
        self._limit = RateLimit(MOST_A_MINUTE, 60.0, now)
        self._open: Counter[str] = Counter()

    async def answer(self, request: Request, name: str, arguments: Mapping[str, Any]) -> str:
        """Answer one call. Raises ToolRefused."""
        api = OwnApi(request.scope)
        tool = TOOLS.get(name)
        if tool is None:
            raise ToolRefused(f"There is no tool of that name; these are: {', '.join(TOOLS)}.", 404)
        with self._counted(api):
            await run_in_threadpool(self._write_down, api, tool, arguments)
            try:
                return await tool.answer(Call(self._service, api, shown_url(request)), _checked(tool, arguments))
            except ToolRefused as error:
                raise ToolRefused(_refusal(error), error.status) from None

    @contextmanager
    def _counted(self, api: OwnApi) -> Iterator[None]:
        """Count a call while it is answered. Raises ToolRefused where there are too many."""
        rights = api.principal.rights
        token, subject = api.principal.access_token or str(rights.by), (rights.via or "this token").capitalize()
        if self._open[token] >= MOST_AT_ONCE:
            raise ToolRefused(f"{subject} has {MOST_AT_ONCE} open calls, which is the most: let one end first.", 429)
        if not self._limit.take(token):
            raise ToolRefused(
                f"{subject} made {MOST_A_MINUTE} calls within a minute, which is the most. Try again in a minute, and "
                "use `wait` instead of asking again and again.",
                429,
            )
        self._open[token] += 1
        try:
            yield
        finally:
            self._open[token] -= 1
            self._open += Counter()  # forgets those without open calls

    def _write_down(self, api: OwnApi, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Note the call in the audit log, a wait for one run once; where the store takes no writes, in our own log."""
        given = {name: arguments[name] for name in WRITTEN_DOWN if arguments.get(name)}
        more = {name: cut(clean(masked_text(str(value))), LONGEST_NOTED) for name, value in given.items()}
        with api.acting():
            try:
                audit.record_tool_call(self._service.store, tool.name, more, is_once=tool.name == "wait")
            except (DBAPIError, PoolTimeout, StoreGone):
                log.warning("not in the audit log: %s called tool %s", acting.rights().via or acting.name(), tool.name)


def _checked(tool: Tool, arguments: Mapping[str, Any]) -> Arguments:
    """Return a tool's arguments. Raises ToolRefused with the field and the rule."""
    try:
        return tool.arguments.model_validate(arguments)
    except ValidationError as error:
        raise ToolRefused(describe(error.errors())[1], 422) from None


def _refusal(error: ToolRefused) -> str:
    """Return the sentence of a refusal, fenced where it may quote what users wrote."""
    if not error.may_quote:
        return cut(clean(str(error)), LONGEST_ERROR)
    fence = TextFence(LONGEST_ERROR)
    return f"{fence.rule} {fence.text(str(error))}"
