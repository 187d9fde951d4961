"""The cause of a failure stands on a page once: the header has it, and findings add what it does not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.attempts import attempt_queries
from db.findings.findings import findings_reported
from domain.messages import Finding, RankError, Reason
from tests.dashboard.pages import Pages, served

LEFT_OUT = "Rank 1 did not come to broadcast 7 of group 0."
FIX = "Look for a collective under an if that not all ranks take."
FINDING = Finding(kind="collectives differ", evidence=LEFT_OUT, meaning="Some waited for a call.", fix=FIX)
OTHER = Finding(kind="memory leak", evidence="Rank 0 grows by 2 MiB a step.", meaning="It will run out.", fix="Detach.")


@pytest.fixture
def pages(tmp_path: Path):
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch("a", 100, gpus_per_node=2)
        pages.seed.start("a", 90)
        yield pages


def find(pages: Pages, *found: Finding) -> None:
    """The node reports these findings."""
    attempt = attempt_queries.attempts(pages.seed.store, pages.seed.runs["a"])[-1]
    node_id = next(iter(pages.seed.node_ids.values()))
    findings_reported(pages.seed.store, node_id, attempt.fence, 0, list(found), pages.seed.now)


def cards(pages: Pages) -> list[str]:
    """What the run's page says below its header."""
    page = pages.open("run", id=pages.seed.runs["a"])
    assert not page.exception
    return [card.value for card in (*page.error, *page.warning)]


def fail(pages: Pages, message: str, next_step: str | None = None, output: str | None = None) -> None:
    """Rank 0 fails with this end of its output."""
    error = None if output is None else RankError(rank=0, node_rank=0, traceback=output)
    pages.seed.report(
        "a", "failed", 10, exit_code=1, reason=Reason.SCRIPT_ERROR,
        message=message, next_step=next_step, error=error,
    )  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        f"{LEFT_OUT} rank 0 on gpu-1: RuntimeError: Connection closed by peer",
        f"rank 0 on gpu-1: r{LEFT_OUT[1:-1]}; then RuntimeError: Connection closed by peer",
    ],
)
def test_a_failure_names_its_cause_and_its_next_step_once(pages: Pages, message: str) -> None:
    find(pages, FINDING, OTHER)
    fail(pages, message, FIX)
    first, second = cards(pages)
    assert first.replace("\\", "") == "**Collectives differ.**\n\nSome waited for a call."
    assert "grows by 2 MiB" in second and "Detach" in second


def test_a_failure_of_another_cause_leaves_findings_whole(pages: Pages) -> None:
    find(pages, FINDING)
    fail(pages, "rank 0 on gpu-1: ValueError: no labels", "Check the labels.")
    (card,) = cards(pages)
    assert "did not come to broadcast 7" in card and "under an if" in card


@pytest.mark.parametrize(("output", "boxes"), [("no labels", 0), ("step 7\nno labels", 1)])
def test_a_last_line_that_the_message_has_is_not_shown_again(pages: Pages, output: str, boxes: int) -> None:
    fail(pages, "rank 0 on gpu-1: exit code 3, no traceback; last line: no labels", output=output)
    assert len(pages.open("run", id=pages.seed.runs["a"]).code) == boxes


def test_a_live_run_has_its_first_finding_in_the_header_alone(pages: Pages) -> None:
    find(pages, FINDING, OTHER)
    first, second = cards(pages)
    assert "did not come" not in first and "under an if" in first
    assert "grows by 2 MiB" in second
