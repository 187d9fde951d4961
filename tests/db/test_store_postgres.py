"""PostgreSQL as the store: said in words when it cannot be, exact about what it keeps, and many writers at once."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from cli.main import run
from db.attempts import attempt_queries
from db.checkpoints import checkpoint_reports
from db.engine import Store, StoreUnusable
from db.exceptions import WrongState
from db.lookups import attempt_scope
from db.metrics import curves
from db.models import File, Node, Series, Task
from db.nodes import node_queries, node_reports
from db.runs import run_queries, run_requests
from db.scheduling import queue_placement
from db.tasks import task_reports
from domain.messages import CheckpointOffer, PointBatch, State, TaskReport
from domain.spec import RunSpec
from tests.db import task_streams
from tests.db.cluster import Cluster, facts
from tests.postgresql import GUARDED, PASSWORD
from tests.postgresql import Cluster as Server

pytestmark = pytest.mark.both_stores

TURNS = 40


@pytest.fixture
def stores(postgres_url: str) -> Iterator[list[Store]]:
    """The same database as two dashboards have it open."""
    opened = [Store.open(postgres_url), Store.open(postgres_url)]
    yield opened
    for store in opened:
        store.close()


@pytest.fixture
def pair(stores: list[Store]) -> list[Cluster]:
    """One node, seen through both dashboards."""
    node_id = node_reports.register_node(stores[0], facts(slots=8), None, 100.0).node_id
    return [Cluster(store, node_id) for store in stores]


def test_a_connection_that_outlasts_the_store_is_closed_when_it_is_returned(postgres_url: str) -> None:
    store = Store.open(postgres_url)
    with store.read() as session:
        driver = session.connection().connection.driver_connection
        store.close()
        assert driver is not None and not driver.closed
    assert driver.closed


def at_once(*actions: Callable[[], object]) -> list[object]:
    """What each returned; all of them begin together, each in a thread of its own."""
    barrier = threading.Barrier(len(actions))

    def begin(action: Callable[[], object]) -> object:
        barrier.wait()
        return action()

    with ThreadPoolExecutor(len(actions)) as threads:
        return [future.result(300) for future in [threads.submit(begin, action) for action in actions]]


# -- reached, or refused in words ---------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_said_with_its_place(tmp_path: Path):
    with pytest.raises(StoreUnusable, match=r"cannot be reached at postgresql\+psycopg://u@127\.0\.0\.1:1/db"):
        Store.open("postgresql+psycopg://u:geheim@127.0.0.1:1/db")


def test_no_sentence_holds_the_password(postgres: Server):
    for url in (
        "postgresql://u:geheim@127.0.0.1:1/db?password=geheim",
        postgres.url("postgres", GUARDED, "geheim"),
        postgres.url("nowhere", GUARDED, "geheim"),
        "mysql://u:geheim@h/db",
        "geheim://",
    ):
        with pytest.raises(StoreUnusable) as refused:
            Store.open(url)
        assert "geheim" not in str(refused.value).replace("geheim://", "").replace("be geheim:", "")


def test_a_setting_that_is_no_url_is_refused_unseen(monkeypatch, capsys):
    monkeypatch.setenv("RANKZERO_DATABASE_URL", "geheim")
    assert run(["dashboard"]) == 2
    said = capsys.readouterr().err
    assert "RANKZERO_DATABASE_URL" in said and "must be a URL" in said and "geheim" not in said


def test_a_wrong_password_is_told_where_to_put_the_right_one(postgres: Server, monkeypatch):
    with pytest.raises(StoreUnusable, match=r"refuses the login .*PGPASSWORD"):
        Store.open(postgres.url("postgres", GUARDED, "wrong"))
    with pytest.raises(StoreUnusable, match=r"refuses the login .*PGPASSWORD"):
        Store.open(postgres.url("postgres", GUARDED))
    with postgres.database() as url:
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        Store.open(url.replace("rankzero@", f"{GUARDED}@")).close()


def test_a_missing_database_and_an_unknown_user_are_told_how_to_be_made(postgres: Server):
    with pytest.raises(StoreUnusable, match="createdb nowhere"):
        Store.open(postgres.url("nowhere"))
    with pytest.raises(StoreUnusable, match="createuser stranger"):
        Store.open(postgres.url("postgres", "stranger"))


def test_without_the_driver_it_says_how_to_install_it(monkeypatch, postgres_url: str):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreUnusable, match=r"python\S* -m pip install 'psycopg\[binary\]'"):
        Store.open(postgres_url)


def test_a_database_that_is_not_utf8_is_refused(postgres: Server):
    postgres.execute("create database latin template template0 encoding 'SQL_ASCII' locale 'C'")
    with pytest.raises(StoreUnusable, match="encoded as SQL_ASCII; Rankzero needs UTF8"):
        Store.open(postgres.url("latin"))


def test_the_usual_spellings_of_the_url_mean_the_same(postgres_url: str):
    for spelling in ("postgres://", "postgresql://"):
        Store.open(postgres_url.replace("postgresql+psycopg://", spelling)).close()


def test_two_dashboards_that_start_at_once_make_the_tables_once(postgres: Server):
    with postgres.database("template0") as url:
        for store in at_once(*[lambda: Store.open(url)] * 4):
            assert isinstance(store, Store)
            assert run_queries.runs(store, 0.0) == []
            store.close()


def test_a_backup_is_pg_dumps_work(stores: list[Store], tmp_path: Path):
    with pytest.raises(StoreUnusable, match=r"pg_dump .*'postgresql://rankzero@/test"):
        stores[0].backup(tmp_path / "copy")


def test_after_a_restart_of_the_server_the_store_goes_on(postgres: Server, stores: list[Store]):
    store = stores[0]
    with store.write() as session:
        session.execute(text("select 1"))
    postgres.stop(signal.SIGQUIT)
    with pytest.raises(OperationalError), store.write():
        pass
    postgres.start()
    assert node_reports.register_node(store, facts(), None, 1.0).node_id
    assert len(node_queries.nodes(store, 1.0)) == 1


def test_a_dashboard_that_stands_still_lets_go_of_its_locks(stores: list[Store]):
    first, second = stores
    with pytest.raises(DBAPIError, match="idle-in-transaction"), first.write() as session:
        started = time.monotonic()
        session.execute(text("set local idle_in_transaction_session_timeout = '200ms'"))
        with second.write():
            assert time.monotonic() - started > 0.1
        session.execute(text("select 1"))


# -- exact --------------------------------------------------------------------------------------------------------


def test_numbers_that_are_none_and_large_ones_come_back(pair: list[Cluster]):
    cluster = pair[0]
    run_id = cluster.launch()
    (assignment,) = cluster.assignments()
    values = [(5, -0.5, 1.0), (2**40, math.nan, 2.0), (2**62, math.inf, 3.0), (2**62 + 1, -math.inf, 4.0)]
    values += [(2**63 - 1, 1e-310, 5.0)]
    cluster.points(assignment.fence, 0, 2**40, {"loss": values})
    stored = curves.series(cluster.store, run_id)["loss"].points
    assert math.isnan(stored[1][1]) and [p[1] for p in stored[2:]] == [math.inf, -math.inf, 1e-310]
    assert [p[0] for p in stored] == [5, 2**40, 2**62, 2**62 + 1, 2**63 - 1]
    with cluster.store.read() as session:
        assert session.query(Series).one().last_value == 1e-310
        assert session.query(File).one().points_offset == 2**40


def test_json_keeps_what_it_is_given_and_says_in_words_what_json_cannot(store: Store):
    info = {"größe": [1, 2.5, None, True], "nul": "a\0b", "nan": math.nan, "deep": {"inf": -math.inf}}
    node_reports.register_node(store, facts(info=info), None, 1.0)
    with store.read() as session:
        stored = session.query(Node).one().info
    assert {**info, "nan": "NaN", "deep": {"inf": "-Infinity"}} == {k: stored[k] for k in info}


def test_a_nul_in_a_text_stops_nothing(store: Store):
    cluster = Cluster(store, node_reports.register_node(store, facts(), None, 100.0).node_id)
    run_id = cluster.launch()
    (assignment,) = cluster.assignments()
    for start in (0, 10):
        assert cluster.points(assignment.fence, start, start + 10, {"lo\0ss": [(start, 1.0, 1.0)]}).stored
    (series,) = curves.series(store, run_id).values()
    assert series.count == 2
    cluster.report(assignment.fence, "failed", message="died\0badly")
    assert run_queries.run(store, run_id, 1.0).message in ("died\0badly", "died\ufffdbadly")


def test_search_knows_no_case_and_takes_signs_as_they_are(store: Store):
    cluster = Cluster(store, node_reports.register_node(store, facts(), None, 100.0).node_id)
    plain = cluster.launch(name="Plain ResNet")
    signs = cluster.launch(name="100%_done")
    stored = {word: [run.id for run in run_queries.runs(store, 1.0, text=word)] for word in ("RESNET", "%_", "%d")}
    assert stored == {"RESNET": [plain], "%_": [signs], "%d": []}


def test_runs_of_one_instant_have_an_order(store: Store):
    cluster = Cluster(store, node_reports.register_node(store, facts(), None, 100.0).node_id)
    ids = sorted(cluster.launch() for _ in range(5))
    assert [run.id for run in run_queries.runs(store, 1.0)] == ids


# -- at once ------------------------------------------------------------------------------------------------------


def test_points_sent_through_both_dashboards_are_stored_once(pair: list[Cluster]):
    run_id = pair[0].launch()
    (assignment,) = pair[0].assignments()
    for turn in range(TURNS):
        points = [(step, float(step), 1.0) for step in range(turn * 10, turn * 10 + 10)]
        start = turn * 100
        stored = at_once(
            *[lambda c=c, s=start, p=points: c.points(assignment.fence, s, s + 100, {"a": p, "b": p}) for c in pair]
        )
        assert sorted(arrival.stored for arrival in stored) == [False, True]
        assert {arrival.offset for arrival in stored} == {start + 100}
    for series in curves.series(pair[0].store, run_id).values():
        assert [p[0] for p in series.points] == list(range(TURNS * 10))


def test_points_of_several_attempts_are_stored_at_the_same_time(pair: list[Cluster]):
    """While one transaction is open, another of another attempt ends; one of the same attempt does not."""
    for _ in range(2):
        pair[0].launch(gpus_per_node=2)
    first, second = (assignment.fence for assignment in pair[0].assignments())
    done = threading.Event()
    with pair[0].store.write(attempt_scope(first)):
        assert pair[1].points(second, 0, 10, {"a": [(1, 1.0, 1.0)]}).stored
        same = threading.Thread(target=lambda: (pair[1].points(first, 0, 10, {"a": [(1, 1.0, 1.0)]}), done.set()))
        whole = threading.Thread(target=lambda: run_requests.request_stop(pair[1].store, run_of(pair, second), 1.0))
        same.start()
        whole.start()
        assert not done.wait(0.2) and whole.is_alive()
    same.join(300)
    whole.join(300)
    assert done.is_set() and not whole.is_alive()


def run_of(pair: list[Cluster], fence: int) -> str:
    return str(attempt_queries.run_of_attempt(pair[0].store, fence))


def test_a_checkpoint_offered_twice_at_once_is_one(pair: list[Cluster]):
    pair[0].launch()
    (assignment,) = pair[0].assignments()
    for turn in range(TURNS):
        offer = CheckpointOffer(path=f"{turn}.pt", size_bytes=1, sha256="0" * 64, written_at=1.0)
        stored = at_once(
            *[
                lambda c=c, o=offer: checkpoint_reports.offered(c.store, c.node_id, assignment.fence, 0, o, 1.0).id
                for c in pair
            ]
        )
        assert stored[0] == stored[1]


def test_a_file_first_seen_by_both_is_one_and_grows_once(pair: list[Cluster]):
    pair[0].launch()
    (assignment,) = pair[0].assignments()

    def append(cluster: Cluster, path: str) -> tuple[int, int]:
        file_id, _ = task_streams.file_for_append(cluster.store, cluster.node_id, assignment.fence, 0, path, 0)
        return file_id, task_reports.file_grew(cluster.store, file_id, 0, 10)

    for turn in range(TURNS):
        assert len(set(at_once(*[lambda c=c, p=f"log{turn}": append(c, p) for c in pair]))) == 1


def test_a_run_that_is_stopped_while_it_is_placed_is_one_or_the_other(pair: list[Cluster]):
    for _ in range(TURNS):
        run_id = run_requests.submit(pair[0].store, RunSpec(target="image_classifier", gpus_per_node=1), 100.0)
        at_once(pair[0].place, pair[1].place, lambda r=run_id: run_requests.request_stop(pair[1].store, r, 100.0))
        run = run_queries.run(pair[0].store, run_id, 100.0)
        assigned = [assignment for assignment in pair[0].assignments() if assignment.run_id == run_id]
        if run.state == State.STOPPED:
            assert assigned == []
        else:
            assert (run.state, [assignment.action for assignment in assigned]) == (State.STARTING, ["stop"])
            pair[0].report(assigned[0].fence, "stopped")


def test_no_device_is_given_out_twice(pair: list[Cluster]):
    for _ in range(20):
        run_requests.submit(pair[0].store, RunSpec(target="image_classifier", gpus_per_node=1), 100.0)
    at_once(*[c.place for c in pair] * 4)
    with pair[0].store.read() as session:
        given = [device for task in session.query(Task) for device in task.devices]
    assert len(given) == len(set(given)) == 8


def test_reports_of_two_nodes_at_once_end_the_attempt_once(stores: list[Store]):
    ids = [node_reports.register_node(stores[0], facts(f"n{k}"), None, 100.0).node_id for k in range(2)]
    for _ in range(TURNS // 2):
        spec = RunSpec(target="image_classifier", nodes=2, gpus_per_node=1)
        run_id = run_requests.submit(stores[0], spec, 100.0)
        queue_placement.place_queue(stores[0], 100.0, silent_after_s=30)
        with stores[0].read() as session:
            tasks = [(p.fence, p.node_rank, p.node_id) for p in session.query(Task).filter_by(state="starting")]
        assert {task[2] for task in tasks} == set(ids)
        for state in ("running", "succeeded"):
            report = TaskReport(state=state, interpreter={"torch": "2.13.0"})
            at_once(
                *[
                    lambda s=s, p=p, r=report: task_reports.task_reported(s, p[2], p[0], p[1], r, 101.0)
                    for s, p in zip(stores, tasks, strict=True)
                ]
            )
        assert run_queries.run(stores[0], run_id, 101.0).state == State.SUCCEEDED
        lines = [line.text for line in run_queries.history(stores[0], run_id)]
        assert sum(line.startswith("succeeded") for line in lines) == 1


def test_two_resumes_at_once_open_one_attempt(pair: list[Cluster]):
    run_id = pair[0].launch()
    for turn in range(10):
        (assignment,) = pair[0].assignments()
        pair[0].report(assignment.fence, "failed")

        def resume(cluster: Cluster) -> int | str:
            try:
                return run_requests.resume(cluster.store, run_id, 200.0)
            except WrongState:
                return "refused"

        assert sorted(map(str, at_once(*[lambda c=c: resume(c) for c in pair]))) == [str(turn + 2), "refused"]
        pair[0].place()


def test_one_dashboard_at_a_time_is_alone_under_a_name(stores: list[Store]):
    inside: list[int] = []

    def enter(store: Store) -> None:
        with store.alone("scheduling"):
            inside.append(len(inside))
            before = len(inside)
            time.sleep(0.02)
            assert len(inside) == before

    at_once(*[lambda s=s: enter(s) for s in stores] * 3)
    assert len(inside) == 6


def test_points_batches_are_checked_before_they_are_stored(pair: list[Cluster]):
    pair[0].launch()
    (assignment,) = pair[0].assignments()
    points = {"a": [(2**64, 1.0, 1.0)]}  # no request can bring it, but the store looks for itself
    batch = PointBatch.model_construct(path="e", generation=0, start=0, end=1, series=points)
    with pytest.raises(Exception, match="too big"):
        task_streams.points_arrived(pair[0].store, pair[0].node_id, assignment.fence, 0, batch)
    assert pair[0].points(assignment.fence, 0, 1, {"a": [(1, 1.0, 1.0)]}).stored
