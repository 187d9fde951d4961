"""The program: reads one request from its standard input, pushes, and prints lines of JSON.

Progress as {"progress": [done, total, what]}, then one of {"result": …}, {"refused": why}, {"failed": why}. Secrets
come with the request alone: neither its arguments nor its environment have any.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, Field

from domain.checkpoint_use.push_target import PushTarget
from domain.clock import SYSTEM_CLOCK, Clock
from domain.text.formats import duration
from domain.text.paths import problem_in_words
from worker.pushing.bucket_push import BucketPush
from worker.pushing.hub_push import HubPush
from worker.pushing.push_report import Cut, PushFailed, PushRefused, PushReport
from worker.pushing.pushed_files import PushedFile, card_files, checkpoint_files


class PushOrder(BaseModel):
    """What to push, where, and with which credentials."""

    name: str
    """The name of a single file at the target."""
    target: str
    is_private: bool = True
    secrets: Annotated[dict[str, str], Field(repr=False)]
    """By the name of each credential: HF_TOKEN."""
    card: dict[str, Any] = {}
    """text, and pictures by name as base64; empty: no card."""
    message: str
    """Of the commit."""


class PushDestination(Protocol):
    """A place that takes files."""

    def open(self, is_private: bool) -> list[str]: ...

    def card(self) -> str | None: ...

    def send(self, files: list[PushedFile], message: str) -> dict[str, Any]: ...


def main() -> None:
    """Push what standard input asks for."""
    request = PushOrder.model_validate_json(sys.stdin.buffer.read())
    run(Path(sys.argv[1]), request, _write, SYSTEM_CLOCK)


def run(source: Path, request: PushOrder, write: Callable[[str], object], clock: Clock) -> None:
    """Push a file, or all files of a folder, and print how it went."""
    report = PushReport(write, request.secrets.values(), clock)
    try:
        with warnings.catch_warnings(action="ignore"):  # of the libraries about themselves
            result = _with_patience(source, request, report, clock)
        report.end(result=result)
    except PushRefused as error:
        report.end(refused=str(error))
    except PushFailed as error:
        report.end(failed=str(error))
    except Cut as error:
        report.end(failed=f"{error}. Push again: what has arrived is not sent a second time.")
    except OSError as error:
        report.end(failed=f"The checkpoint could not be read: {problem_in_words(error)}.")
    except Exception as error:  # of a library: the node tells people instead of its log
        report.end(failed=f"The push broke off ({type(error).__name__}): {error}")


def _with_patience(source: Path, request: PushOrder, report: PushReport, clock: Clock) -> dict[str, Any]:
    """Push; where the place cannot be reached, wait and continue, for about twenty minutes."""
    for pause_s in PAUSES_S:
        try:
            return push(source, request, report)
        except Cut as cut:
            report.doing(f"tries again in {duration(pause_s)}: {cut}")
            clock.pause(pause_s)
    return push(source, request, report)


def push(source: Path, request: PushOrder, report: PushReport) -> dict[str, Any]:
    """Push once and return the result. Raises PushRefused, Cut, PushFailed, OSError."""
    target = PushTarget.parse(request.target)
    report.doing(f"connects to {target}")
    destination: PushDestination = DESTINATIONS[target.kind](target, request.secrets, report)
    notes = destination.open(request.is_private)
    files = checkpoint_files(source, request.name)
    card, why_no_card = card_files(request.card, files, destination.card())
    files = [*files, *card]
    report.total_bytes = sum(file.size_bytes for file in files)
    result = destination.send(files, request.message)
    notes += [*result.pop("notes", ()), *filter(None, [why_no_card])]
    return result | {
        "files": len(files), "bytes": report.total_bytes, "sent_bytes": report.sent_bytes, "notes": notes,
    }  # fmt: skip


PAUSES_S = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
DESTINATIONS: dict[str, type[HubPush] | type[BucketPush]] = {"hf": HubPush, "s3": BucketPush}


def _write(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
