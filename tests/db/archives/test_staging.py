"""An archive's points are stored in small transactions that nobody sees; killed imports leave nothing."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import func, select

from db.archives.documents import RunDocument, run_document
from db.archives.restore import ABANDONED_AFTER_S, PIECE_POINTS, ArchiveSource, delete_abandoned, restore
from db.engine import Store
from db.metrics import curves, points
from db.metrics.points import CHUNK_POINTS, pack
from db.models import Chunk, Node, Series
from db.runs import deletion, run_queries
from db.search.run_search import words
from domain.messages import Point
from domain.requests.errors import InvalidRequest
from tests.db.cluster import Cluster

POINTS: list[Point] = [(step, math.sin(step), 100.0 + step) for step in range(3 * PIECE_POINTS + 100)]
ORIGIN = ArchiveSource("elsewhere:/runs.zip", "0" * 64)
LIMIT_S = 300.0


class Archived:
    """The points of an archive; something may happen before each chunk is read."""

    def __init__(
        self, points: Mapping[int, list[Point]] | None = None, happens: Callable[[int], None] = lambda chunk: None
    ) -> None:
        """`points`: those of each series, by its id; by default `POINTS` of any."""
        self._points, self._happens = points or {}, happens

    def chunks(self, series_id: int) -> Iterator[bytes]:
        points = self._points.get(series_id, POINTS)
        for number, start in enumerate(range(0, len(points), CHUNK_POINTS)):
            self._happens(number)
            yield pack(points[start : start + CHUNK_POINTS])

    def move_file(self, *_: Any) -> None:
        """The bytes of files are not looked at here."""

    move_checkpoint = move_file


@pytest.fixture
def archived(cluster: Cluster) -> RunDocument:
    """The document of a run that is not in the store any more."""
    run_id = cluster.launch()
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    cluster.points(assignment.fence, 0, 10, {"train/loss": POINTS})
    cluster.report(assignment.fence, "succeeded", exit_code=0)
    document = run_document(cluster.store, run_id)
    deletion.erase(cluster.store, run_id, cluster.now)
    return document


def imported(store: Store, document: RunDocument, content: Archived, now: float = 500.0) -> None:
    restore(store, document.run["id"], document, content, ORIGIN, lambda: now)


def rows(store: Store, table: type[Series] | type[Chunk]) -> int:
    with store.read() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def loss(store: Store, document: RunDocument) -> list[Point]:
    return curves.series(store, document.run["id"])["train/loss"].points


def seen(store: Store, document: RunDocument) -> list[Any]:
    """What anybody sees of the run."""
    run = run_queries.run(store, document.run["id"], 0.0)
    return [*([run] if run else []), *words(store, "series", "")]


def test_others_write_while_an_import_stores_its_points_and_nobody_sees_a_part(
    store: Store, cluster: Cluster, archived: RunDocument
) -> None:
    written: list[int] = []

    def another_writes(chunk: int) -> None:
        assert seen(store, archived) == []
        others = threading.Thread(target=lambda: written.append(write_one(store, cluster, len(written))))
        others.start()
        others.join(LIMIT_S)
        assert not others.is_alive(), "a writer waits for the import"

    imported(store, archived, Archived(happens=another_writes))
    assert len(written) == math.ceil(len(POINTS) / CHUNK_POINTS)
    assert loss(store, archived) == POINTS
    before = archived.attempts[0].series
    with store.read() as session:
        levels = session.scalars(select(Chunk.level).distinct().order_by(Chunk.level)).all()
    assert levels == [0, 1, 2] and rows(store, Series) == 1
    after = run_document(store, archived.run["id"]).attempts[0].series
    assert [row | {"id": 0} for row in after] == [row | {"id": 0} for row in before]


def write_one(store: Store, cluster: Cluster, number: int) -> int:
    with store.write("another") as session:
        cluster_node = session.get(Node, cluster.node_id)
        assert cluster_node is not None
        cluster_node.last_seen = number
    return number


def test_one_transaction_holds_few_points(store: Store, archived: RunDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    appended: list[int] = []
    original = points.append

    def noted(session: Any, new: Any) -> None:
        appended.extend(len(points) for _, points in new.values())
        original(session, new)

    monkeypatch.setattr(points, "append", noted)
    imported(store, archived, Archived())
    assert appended == [PIECE_POINTS, PIECE_POINTS, PIECE_POINTS, 100]


def fails_in_the_middle(chunk: int) -> None:
    if chunk == 40:
        raise InvalidRequest("archive", "It is damaged.")


def test_failed_import_leaves_nothing(store: Store, archived: RunDocument) -> None:
    with pytest.raises(InvalidRequest, match="damaged"):
        imported(store, archived, Archived(happens=fails_in_the_middle))
    assert (rows(store, Series), rows(store, Chunk), seen(store, archived)) == (0, 0, [])
    imported(store, archived, Archived())
    assert loss(store, archived) == POINTS


def import_and_be_killed(url: str, document: RunDocument) -> None:
    def dies(chunk: int) -> None:
        if chunk == 40:
            os.kill(os.getpid(), signal.SIGKILL)

    imported(Store.open(url), document, Archived(happens=dies))


def test_killed_import_is_deleted_later_and_can_be_repeated(
    store: Store, store_url: str, archived: RunDocument
) -> None:
    killed = multiprocessing.get_context("spawn").Process(target=import_and_be_killed, args=(store_url, archived))
    killed.start()
    killed.join(LIMIT_S)
    assert killed.exitcode == -signal.SIGKILL
    assert rows(store, Series) == 1 and rows(store, Chunk) > 16 and seen(store, archived) == []
    assert not delete_abandoned(store, 500.0 + ABANDONED_AFTER_S), "it may still be under way"
    imported(store, archived, Archived())
    assert delete_abandoned(store, 501.0 + ABANDONED_AFTER_S)
    assert not delete_abandoned(store, 501.0 + ABANDONED_AFTER_S)
    assert rows(store, Series) == 1
    assert loss(store, archived) == POINTS


def test_an_earlier_life_of_the_script_comes_back_as_one(store: Store, cluster: Cluster) -> None:
    run_id = cluster.launch()
    (assignment,) = cluster.assignments()
    cluster.points(assignment.fence, 0, 10, {"loss": POINTS[:200]}, path="first")
    cluster.points(assignment.fence, 0, 10, {"loss": POINTS[50:150]}, path="second")
    cluster.report(assignment.fence, "succeeded", exit_code=0)
    document, before = run_document(store, run_id), curves.series(store, run_id, whole=True)["loss"]
    lives = {
        series["id"]: segment.points
        for series, segment in zip(document.attempts[0].series, before.segments, strict=True)
    }
    deletion.erase(store, run_id, cluster.now)
    imported(store, document, Archived(lives))
    assert curves.series(store, run_id)["loss"].points == POINTS[:150]
    assert curves.series(store, run_id, whole=True)["loss"].points == before.points
