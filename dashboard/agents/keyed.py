"""Launch or act once for a key of the agent's own, although calls are repeated where an answer was lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.concurrency import run_in_threadpool

from dashboard.agents.own_api import ToolRefused
from dashboard.agents.tool import Call
from dashboard.json_responses import json_text
from db.budgets import launch_keys
from db.budgets.launch_keys import KeyedRequest


async def once(call: Call, key: str, content: object, do: Callable[[], Awaitable[str]]) -> tuple[str, bool]:
    """Return the id of the run that `do` returns, or returned before for this key; and whether it was before.

    Raises ToolRefused where the key was used for other content, or its first call has not been answered."""
    store, request = call.service.store, KeyedRequest(key, json_text(content))
    with call.api.acting():
        before = await run_in_threadpool(launch_keys.begin, store, request, call.service.clock())
        if before is not None:
            return _earlier(before), True
        try:
            run_id = await do()
        except ToolRefused as error:
            if error.status < 500:  # after a failure nobody knows what was done
                await run_in_threadpool(launch_keys.refused, store, request)
            raise
        await run_in_threadpool(launch_keys.answered, store, request, run_id)
        return run_id, False


def _earlier(before: launch_keys.Earlier) -> str:
    if not before.is_same:
        raise ToolRefused("This key was used for something else: take another `key` for another request.", 409)
    if not before.run_id:
        raise ToolRefused(
            "The first call with this key is not answered yet, or was cut off. Look with `runs` whether it did its "
            "work before you take another key.", 409,
        )  # fmt: skip
    return before.run_id
