"""Lines of all ranks and both streams in one view, by the time at which they arrived."""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dashboard.logs import merge, search
from dashboard.logs.merge import (
    Line,
    LogSource,
    MergePosition,
    lines_before,
    lines_from,
    offsets_at,
    position_of,
)
from dashboard.storage.files import ArrivalTimes, count_notes, note_arrival
from tests.dashboard.api.runs.rank_logs import PIECES, write_logs
from tests.dashboard.running import LIMIT_S, FakeNode, Running, running

RANKS = [(0, "out"), (0, "err"), (1, "out"), ("launcher", "err")]


class Logs:
    """Logs in memory, whose notes are where they always are: in files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bytes = folder, dict.fromkeys(range(len(RANKS)), b"")

    def write(self, order: int, content: bytes, at_ms: int) -> None:
        start = len(self.bytes[order])
        self.bytes[order] += content
        note_arrival(self.folder / str(order), start, start + len(content), at_ms)

    def sources(self, is_complete: bool = False) -> list[LogSource]:
        return [self._source(order, is_complete) for order in self.bytes]

    def _source(self, order: int, is_complete: bool) -> LogSource:
        path, content, (rank, stream) = self.folder / str(order), self.bytes[order], RANKS[order]
        times = ArrivalTimes(partial(read_file, path), count_notes(path), len(content))
        read = partial(lambda content, at, limit: content[at : at + limit], content)
        return LogSource(rank, stream, order, order, read, len(content), times, is_complete)


def read_file(path: Path, offset: int, limit: int) -> bytes:
    return path.read_bytes()[offset : offset + limit] if path.exists() else b""


def ends(sources: list[LogSource]) -> list[int]:
    return [source.whole_bytes for source in sources]


def shown(lines: list[Line]) -> list[tuple[Any, ...]]:
    return [(line.rank, line.stream, line.text) for line in lines]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cut off where this machine stands still."""
    for module in (merge, search):
        monkeypatch.setattr(module, "MOST_SECONDS", LIMIT_S)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


@pytest.fixture
def many(logs: Logs) -> Logs:
    """Four logs whose stretches end anywhere, also within lines and characters."""
    chance = random.Random(5)
    for step in range(200):
        text = "".join(f"zeile {step}·{i} {'ü' * chance.randrange(9)}\n" for i in range(chance.randrange(4)))
        content = text.encode() + b"half " * chance.randrange(2)
        if content:
            cut = chance.randrange(len(content))
            order = chance.randrange(4)
            logs.write(order, content[:cut], 1000 + step // 3)
            logs.write(order, content[cut:], 1001 + step // 3)
    return logs


def test_lines_of_several_ranks_are_in_the_order_in_which_they_arrived(logs: Logs) -> None:
    logs.write(2, b"one a\none b\n", 1000)
    logs.write(0, b"zero a\nzero", 1250)
    logs.write(1, b"Warning\n", 1300)
    logs.write(0, b" b\nopen", 1500)
    logs.write(3, b"bye\n", 1400)
    lines = lines_before(logs.sources(), ends(logs.sources()), 10_000)
    assert shown(lines) == [
        (1, "out", "one a"), (1, "out", "one b"), (0, "out", "zero a"), (0, "err", "Warning"),
        ("launcher", "err", "bye"), (0, "out", "zero b"),
    ]  # fmt: skip
    assert [line.at for line in lines] == [1.0, 1.0, 1.25, 1.3, 1.4, 1.5]
    assert [line.offset for line in lines] == [0, 6, 0, 0, 0, 7]
    ended = logs.sources(is_complete=True)
    assert shown(lines_before(ended, ends(ended), 10_000))[-1] == (0, "out", "open")


@pytest.mark.parametrize("is_complete", [False, True])
@pytest.mark.parametrize("most_bytes", [1, 7, 40, 500, 10**6])
def test_windows_forwards_and_backwards_show_every_line_once(many: Logs, most_bytes: int, is_complete: bool) -> None:
    whole = lines_before(many.sources(is_complete), ends(many.sources(is_complete)), 10**6)
    for order, (rank, stream) in enumerate(RANKS):
        mine = [line.text for line in whole if (line.rank, line.stream) == (rank, stream)]
        written = many.bytes[order].decode().split("\n")
        assert mine == (written if is_complete and written[-1] else written[:-1])
    assert all((a.at or 0) <= (b.at or 0) for a, b in pairwise(whole))
    if most_bytes < 40:
        return  # lines longer than that come in pieces
    sources = many.sources(is_complete)
    offsets, backwards = ends(sources), list[Line]()
    while lines := lines_before(sources, offsets, most_bytes):
        backwards = lines + backwards
    assert backwards == whole
    offsets, forwards = [0] * len(sources), list[Line]()
    while lines := lines_from(sources, offsets, most_bytes, most_lines=7):
        forwards += lines
    assert forwards == whole


def test_a_position_means_the_same_lines_however_it_is_reached(many: Logs) -> None:
    sources = many.sources()
    whole = lines_before(sources, ends(sources), 10**6)
    for place in range(0, len(whole), 5):
        line = whole[place]
        source = next(s for s in sources if (s.rank, s.stream) == (line.rank, line.stream))
        at = position_of(source, line.offset)
        assert lines_before(sources, offsets_at(sources, at), 10**6) == whole[:place]
        assert lines_from(sources, offsets_at(sources, at), 10**6) == whole[place:]
    assert offsets_at(sources, MergePosition(0, 0, 0)) == [0] * len(sources)


def test_a_line_longer_than_a_window_comes_in_pieces(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "LONGEST_LINE_BYTES", 1000)
    logs.write(0, b"x" * 5000, 1)
    logs.write(0, b"y" * 5000 + b"\nend\n", 2)
    for read, start in ((lines_before, ends), (lines_from, lambda sources: [0] * len(sources))):
        sources, answered = logs.sources(), list[str]()
        offsets = start(sources)
        while lines := read(sources, offsets, 300):
            answered = [*answered, *(line.text for line in lines)] if read is lines_from else (
                [line.text for line in lines] + answered
            )  # fmt: skip
        assert "".join(answered) == "x" * 5000 + "y" * 5000 + "end"


def test_logs_without_notes_stand_in_the_order_of_their_files(logs: Logs) -> None:
    for order in (2, 0):
        logs.bytes[order] = b"old %d\n" % order
    logs.write(0, b"new\n", 5000)
    lines = lines_before(logs.sources(), ends(logs.sources()), 1000)
    assert [(line.text, line.at) for line in lines] == [("old 0", None), ("old 2", None), ("new", 5.0)]


def test_notes_of_bytes_that_were_taken_back_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "7.times"
    for start, end, at in ((0, 10, 100), (10, 20, 200), (20, 30, 300), (15, 40, 400), (40, 41, 350)):
        note_arrival(path, start, end, at)
    times = ArrivalTimes(partial(read_file, path), count_notes(path), 41)
    stretches = [(times.begin(i), times.end(i), times.at_ms(i)) for i in range(count_notes(path))]
    assert stretches == [(0, 10, 100), (10, 15, 100), (15, 40, 400), (40, 41, 400)]
    path.write_bytes(path.read_bytes()[:-5])  # cut off by a crash
    note_arrival(path, 41, 50, 500)
    assert count_notes(path) == 5


def merged(dashboard: Running, run_id: str, **query: Any) -> dict[str, Any]:
    answer = dashboard.http.get(f"/api/runs/{run_id}/logs/merged", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


TEXTS = ["one 0", "one 1", "zero 0", "UserWarning: x", "ValueError: no", "zero 1", "Error: bye"]


def test_the_api_gives_all_ranks_and_both_streams_by_time(dashboard: Running, node: FakeNode) -> None:
    run_id = write_logs(dashboard, node, PIECES)
    answer = merged(dashboard, run_id)
    assert [line["text"] for line in answer["lines"]] == TEXTS
    assert (answer["before"], answer["is_untimed"], answer["attempt"]) == (None, False, 1)
    assert {(line["rank"], line["stream"]) for line in answer["lines"]} == {
        (0, "out"), (0, "err"), (1, "out"), (1, "err"), ("launcher", "err")
    }  # fmt: skip
    texts, before = list[str](), ""
    while before is not None:
        answer = merged(dashboard, run_id, limit=16, before=before)
        texts, before = [line["text"] for line in answer["lines"]] + texts, answer["before"]
    assert texts == TEXTS
    alone = merged(dashboard, run_id, rank="1")
    assert [line["text"] for line in alone["lines"]] == ["one 0", "one 1", "ValueError: no"]
    errors = merged(dashboard, run_id, stream="err")
    assert [line["rank"] for line in errors["lines"]] == [0, 1, "launcher"]
    url = f"/api/runs/{run_id}/logs/merged"
    assert dashboard.http.get(url, params={"rank": "9"}).status_code == 404
    assert dashboard.http.get(url, params={"before": "yesterday"}).status_code == 422
    assert dashboard.http.get(f"{url}/search").status_code == 422


def test_all_logs_are_searched_and_matches_stand_in_their_place(dashboard: Running, node: FakeNode) -> None:
    run_id = write_logs(dashboard, node, PIECES)
    url = f"/api/runs/{run_id}/logs/merged/search"
    hits, place, is_complete = list[dict[str, Any]](), dict[str, int](), False
    while not is_complete:  # a log at a time
        answered = dashboard.http.get(url, params={"q": "E", "limit": 1, **place}).json()
        hits += answered["hits"]
        place = {name: answered[name] for name in ("log", "offset", "line")}
        is_complete = answered["is_complete"]
    answered = dashboard.http.get(url, params={"q": "error"}).json()
    assert [(h["rank"], h["stream"], h["line"], h["text"]) for h in answered["hits"]] == [
        (1, "err", 1, "ValueError: no"), ("launcher", "err", 1, "Error: bye")
    ]  # fmt: skip
    assert {hit["text"] for hit in hits} >= {"one 0", "zero 0", "UserWarning: x", "ValueError: no"}
    around = merged(dashboard, run_id, **{"from": answered["hits"][0]["position"]})
    assert [line["text"] for line in around["lines"]] == TEXTS[4:]
    before = merged(dashboard, run_id, before=answered["hits"][0]["position"])
    assert [line["text"] for line in before["lines"]] == TEXTS[:4]
    errors = dashboard.http.get(url, params={"errors": True}).json()
    assert [hit["text"] for hit in errors["hits"]] == ["ValueError: no", "Error: bye"]
    line = {"rank": "1", "begins_at": 6}
    number = dashboard.http.get(f"/api/runs/{run_id}/logs/search", params=line).json()
    assert [(hit["line"], hit["text"]) for hit in number["hits"]] == [(2, "one 1")]


def test_times_survive_a_restart_and_go_with_the_run(tmp_path: Path) -> None:
    with running(tmp_path / "data") as dashboard:
        node = dashboard.node()
        run_id = write_logs(dashboard, node, PIECES)
        lines = merged(dashboard, run_id)["lines"]
    with running(tmp_path / "data") as dashboard:
        assert merged(dashboard, run_id)["lines"] == lines
        notes = dashboard.service.files.root
        assert len(list(notes.glob("*.times"))) == 5
        for path in notes.glob("*.times"):
            path.rename(path.with_suffix(".kept"))
        untimed = merged(dashboard, run_id)
        assert untimed["is_untimed"] and {line["at"] for line in untimed["lines"]} == {None}
        order = [(line["rank"], line["stream"]) for line in untimed["lines"]]
        assert order == sorted(order, key=lambda log: (log[0] == "launcher", str(log[0]), log[1] == "err"))
        for path in notes.glob("*.kept"):
            path.rename(path.with_suffix(".times"))
        dashboard.service.files.remove([int(path.stem) for path in notes.glob("*.times")], [])
        assert list(notes.glob("*.times")) == []


def test_a_page_follows_all_of_them_and_gets_every_line_once(dashboard: Running, node: FakeNode) -> None:
    run_id = write_logs(dashboard, node, PIECES)
    task = node.task()
    with dashboard.watching(run_id) as page:
        page.subscribe(logs={"rank": "all", "stream": "both"})
        first = page.next_of("log")
        assert (first["reset"], [line["text"] for line in first["lines"]]) == (True, TEXTS)
        node.append(task, "logs/rank0.out", 0, 18, b" 2\n")
        news = page.next_of("log")
        assert (news["reset"], [line["text"] for line in news["lines"]]) == (False, ["zero 2"])
        node.append(task, "logs/rank1.err", 0, 15, b"the end")
        node.append(task, "logs/launcher.out", 0, 0, b"launched\n")
        assert [line["text"] for line in page.next_of("log")["lines"]] == ["launched"]
        node.report(task, "running")
        node.report(task, "succeeded", exit_code=0)
        assert [line["text"] for line in page.next_of("log")["lines"]] == ["the end"]
        page.subscribe(logs={"rank": 1, "stream": "both"})
        again = page.next_of("log")
        assert [line["text"] for line in again["lines"]] == ["one 0", "one 1", "ValueError: no", "the end"]
