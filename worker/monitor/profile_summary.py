"""Summarise one trace: `python -m worker.monitor.profile_summary TRACE` writes overview and flame graph beside it."""

from __future__ import annotations

import gzip
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from domain.profiles.overview import NoSteps, flame, overview, recorded_events
from worker.node.regular_files import open_regular
from worker.node.state_files import write_whole

LIMIT_S = 120
LIMIT_BYTES = 8 << 30


def summarise(trace: Path) -> dict[str, Any]:
    """Return `overview` and `flame` of a packed trace, or `why` there are none."""
    with open_regular(trace) as packed, gzip.open(packed) as unpacked:
        document = json.load(unpacked)
    try:
        events = recorded_events(document)
    except NoSteps as error:
        return {"why": str(error)}
    return {"overview": overview(events).model_dump(mode="json"), "flame": flame(events)}


def main() -> None:
    """Write the summary for the worker, within limits: the node's memory and time are the training's."""
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    trace = Path(sys.argv[1])
    write_whole(trace.with_name(f"{trace.name}.summary"), json.dumps(summarise(trace)))


if __name__ == "__main__":
    main()
