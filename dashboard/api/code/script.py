"""A script's own options, the values proposed for them and its launcher, read without executing it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.responses import Response

from dashboard.api.reading import JsonRoute
from dashboard.errors import Rejection, describe
from dashboard.json_responses import answer
from dashboard.script_reader import targets
from dashboard.script_reader.source import UnreadableScript
from domain.spec import RunSpec

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])


@router.get("/script")
def script(
    target: Annotated[str, Query(max_length=4096, description="Script or folder on the dashboard's machine.")],
    entry: Annotated[str | None, Query(max_length=4096, description="The file to start in a folder.")] = None,
    module: Annotated[str | None, Query(max_length=4096, description="The module to start in a folder.")] = None,
) -> Response:
    """Read a script without executing it. Raises Rejection when it cannot be read."""
    try:
        reading = targets.read(RunSpec(target=target, entry=entry, module=module))
    except ValidationError as error:
        field, sentence = describe(error.errors())
        raise Rejection(422, sentence, field) from error
    except UnreadableScript as unreadable:
        raise Rejection(422, str(unreadable), "target") from unreadable
    content = {name: getattr(reading, name) for name in ("name", "parsers", "options", "proposals")}
    return answer(content | {"launcher": reading.guess})
