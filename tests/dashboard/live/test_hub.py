"""The live channel: first picture, then what happens, and nothing twice."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable

import pytest
from websockets.exceptions import ConnectionClosed

from dashboard.live.hub import LONGEST_QUEUE, Hub
from dashboard.logs.stored_logs import TextPieces
from domain.messages import PointBatch
from tests.dashboard.running import FakeNode, Running, wait_for

LOGS = {"rank": 0, "stream": "out", "attempt": None}


def curve(first: int, last: int) -> list[tuple[int, float, float]]:
    return [(step, 1.0 / step, 100.0 + step) for step in range(first, last + 1)]


def test_a_page_gets_the_picture_and_then_what_is_new(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.report(task, "running")
    node.log_points(task, 0, train__loss=curve(1, 3))
    with dashboard.watching(run_id) as page:
        run = page.next_of("run")
        assert (run["run"]["id"], run["run"]["state"], run["run"]["step"]) == (run_id, "running", 3)
        page.subscribe()
        picture = page.next_of("series")["series"]["train/loss"]
        assert (picture["reset"], picture["attempt"], picture["source"]) == (True, 1, "events")
        assert [p[0] for p in picture["points"]] == [1, 2, 3]
        node.log_points(task, 10, train__loss=[(4, math.nan, 104.0)], val__loss=[(4, math.inf, 104.0)])
        fresh = page.next_of("series")["series"]
        assert fresh["train/loss"]["points"] == [[4, "NaN", 104.0]]
        assert fresh["val/loss"]["points"] == [[4, "Infinity", 104.0]]
        assert not fresh["train/loss"]["reset"]
        page.next(lambda m: m["type"] == "run" and m["run"]["step"] == 4)


def test_a_viewer_is_not_woken_by_what_it_has_no_use_for() -> None:
    async def taken() -> list[str]:
        hub = Hub()
        hub.start()
        with hub.viewer("a") as viewer:
            viewer.ignored = {"log"}
            for kind in ("log", "run", "log"):
                hub.publish("a", {"type": kind})
            return [message["type"] for message in await viewer.take()]

    assert asyncio.run(taken()) == ["run"]


def test_points_that_the_picture_has_do_not_come_again(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    stop = threading.Event()

    def write() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            node.log_points(task, 10 * (step - 1), a=[(step, 0.0, float(step))])

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(5):
            with dashboard.watching(run_id) as page:
                page.subscribe()
                steps: list[int] = []
                while len(steps) < 30 or steps[-1] < 30:
                    change = page.next_of("series")["series"]["a"]
                    steps = [] if change["reset"] else steps
                    steps += [p[0] for p in change["points"]]
                assert steps == list(range(1, steps[-1] + 1))
    finally:
        stop.set()
        writing.join()


def test_a_page_that_comes_back_gets_only_what_it_missed(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.log_points(task, 0, a=curve(1, 5), b=curve(1, 2))
    with dashboard.watching(run_id) as page:
        page.subscribe(since={"1:events:a": 103.0})
        series = page.next_of("series")["series"]
    assert ([p[0] for p in series["a"]["points"]], series["a"]["reset"]) == ([4, 5], False)
    assert ([p[0] for p in series["b"]["points"]], series["b"]["reset"]) == ([1, 2], True)


def test_a_long_series_is_shown_downsampled(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    node.log_points(node.task(), 0, a=curve(1, 30_000))
    with dashboard.watching(run_id) as page:
        page.subscribe(since={"1:events:a": 103.0})
        change = page.next_of("series")["series"]["a"]
    assert change["reset"]
    assert 500 < len(change["points"]) <= 2000


def test_a_log_is_followed_from_its_last_lines_on(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.append(task, "logs/rank0.out", 0, 0, b"old\n" * 40_000 + "grö".encode()[:-1])
    with dashboard.watching(run_id) as page:
        page.subscribe(logs=LOGS)
        first = page.next_of("log")
        assert (first["reset"], first["attempt"], first["offset"]) == (True, 1, 160_003 - 64 * 1024)
        assert first["text"].endswith("old\ngr")
        node.append(task, "logs/rank0.out", 0, 160_003, "grö".encode()[-1:] + b"\xff!\n")
        assert page.next_of("log")["text"] == "ö\ufffd!\n"
        page.subscribe(since={}, logs={**LOGS, "stream": "err"})
        assert page.next_of("log")["text"] == ""
        node.append(task, "logs/rank0.err", 0, 0, b"Traceback\n")
        assert page.next_of("log") == {
            "type": "log", "rank": 0, "stream": "err", "attempt": 1, "offset": 0, "text": "Traceback\n",
            "reset": False,
        }  # fmt: skip


def test_a_page_goes_on_with_the_log_of_the_next_attempt(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.append(task, "logs/rank0.out", 0, 0, b"one\n")
    with dashboard.watching(run_id) as page:
        page.subscribe(logs=LOGS)
        assert page.next_of("log")["text"] == "one\n"
        node.report(task, "stopped")
        dashboard.http.post(f"/api/runs/{run_id}/resume")
        second = node.task()
        node.append(second, "logs/rank0.out", 0, 0, b"two\n")
        texts = ""
        while "two\n" not in texts:
            texts += page.next(lambda m: m["type"] == "log" and m["attempt"] == 2)["text"]
        assert texts == "two\n"


def test_checkpoints_history_and_the_end_are_told(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    with dashboard.watching(run_id) as page:
        page.subscribe()
        node.store_checkpoint(task, b"weights")
        page.next_of("checkpoints")
        page.next_of("history")
        node.report(task, "succeeded")
        page.next(lambda m: m["type"] == "run" and m["run"]["state"] == "succeeded")
        dashboard.http.delete(f"/api/runs/{run_id}")
        page.next_of("deleted")


def test_a_page_on_an_unknown_run_is_told_so(dashboard: Running) -> None:
    with dashboard.watching("nosuchrunx") as page, pytest.raises(ConnectionClosed) as end:
        page.next_of("run")
    assert end.value.rcvd is not None
    assert end.value.rcvd.code == 4404


def test_wrong_message_of_a_page_breaks_nothing(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    with dashboard.watching(run_id) as page:
        for text in ("", "{", "[]", "null", '{"type": "subscribe", "since": {"a": "b"}}', "x" * 50_000):
            page.socket.send(text)
        page.subscribe(logs={**LOGS, "rank": "../../token"})
        page.subscribe(logs=LOGS)
        assert page.next_of("log")["text"] == ""


def test_closed_page_is_no_viewer(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    hub = dashboard.service.hub
    with dashboard.watching(run_id):
        wait_for(lambda: hub.watched(run_id), "the page")
    wait_for(lambda: not hub.watched(run_id), "the page to be gone")
    assert hub.watched_runs() == []


def test_a_viewer_too_far_behind_starts_afresh() -> None:
    async def scenario() -> None:
        hub = Hub()
        hub.start()
        with hub.viewer("r") as slow, hub.viewer("r") as quick:
            for number in range(LONGEST_QUEUE + 1):
                hub.publish("r", {"type": "series", "number": number})
                if number % 100 == 0:
                    await asyncio.sleep(0)
                    await quick.take()
            await asyncio.sleep(0)
            assert await slow.take() == []
            assert slow.needs_resync()
            assert not slow.needs_resync()
            assert not quick.needs_resync()

    asyncio.run(scenario())


def test_a_publication_from_any_thread_arrives_and_after_the_end_nothing_breaks() -> None:
    hub = Hub()

    async def scenario() -> None:
        hub.start()
        with hub.viewer("r") as viewer:
            threading.Thread(target=hub.publish, args=("r", {"type": "run"})).start()
            assert await viewer.take() == [{"type": "run"}]
            with hub.waiting("n1") as waiting:
                threading.Thread(target=hub.close).start()
                await waiting.wait()
            assert await viewer.take() == []
            assert hub.closing

    asyncio.run(scenario())
    hub.publish("r", {"type": "run"})
    hub.desired_state_changed()


def test_only_the_workers_concerned_are_woken() -> None:
    hub = Hub()
    hub.nodes_of = lambda run_ids: {"r": ["n1"]}.get(*run_ids, [])

    async def woken_by(change: Callable[[], None]) -> list[str]:
        with hub.waiting("n1") as one, hub.waiting("n1") as another, hub.waiting("n2") as other:
            await asyncio.to_thread(change)
            await asyncio.sleep(0)
            return [name for name, it in (("one", one), ("another", another), ("other", other)) if it.is_set()]

    async def scenario() -> None:
        hub.start()
        assert await woken_by(lambda: hub.desired_state_of_runs_changed(["r"])) == ["one", "another"]
        assert await woken_by(lambda: hub.desired_state_of_runs_changed(["new"])) == []
        assert await woken_by(lambda: hub.desired_state_changed(["n2", "gone"])) == ["other"]
        assert await woken_by(hub.desired_state_changed) == ["one", "another", "other"]

    asyncio.run(scenario())
    assert hub._waiting == {}


def test_text_is_put_together_across_pieces() -> None:
    pieces = TextPieces()
    assert pieces.decode("aé".encode()[:2]) == "a"
    assert pieces.decode("aé".encode()[2:]) == "é"
    inside = TextPieces(starts_inside=True)
    assert inside.decode("é".encode()[1:] + b"x") == "x"
    assert TextPieces().decode(b"\xff\xfe\x00") == "\ufffd\ufffd\0"


def test_a_page_is_told_where_a_later_life_begins(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()

    def log(file: str, points: list[tuple[int, float, float]]) -> None:
        node.points(task, PointBatch(path=file, generation=0, start=0, end=9, series={"a": points}))

    log("first", curve(1, 5))
    log("second", curve(3, 4))
    with dashboard.watching(run_id) as page:
        page.subscribe()
        pictures = [page.next_of("series")["series"]["a"] for _ in range(2)]
        assert [(len(one["points"]), one["reset"], one["begins_life"]) for one in pictures] == [
            (5, True, False), (2, False, True),
        ]  # fmt: skip
        assert [(one["logged"], one["repeats"]) for one in pictures] == [(5, 0), (2, 0)]
        log("third", [(step, 0.5, 200.0 + step) for step in (1, 1)])
        fresh = page.next_of("series")["series"]["a"]
        assert (len(fresh["points"]), fresh["reset"], fresh["begins_life"]) == (2, False, True)
