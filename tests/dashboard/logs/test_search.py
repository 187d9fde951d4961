"""The whole stored log is searched, wherever stretches of it are cut."""

from __future__ import annotations

import pytest

from dashboard.logs import search as log_search
from dashboard.logs.search import find_error, find_text, line_at, search
from tests.dashboard.running import LIMIT_S, FakeNode, Running


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search is not cut off where this machine stands still."""
    monkeypatch.setattr(log_search, "MOST_SECONDS", LIMIT_S)


def reader(log: bytes):
    return lambda offset, limit: log[offset : offset + limit]


def expected(log: bytes, text: str) -> list[tuple[int, int]]:
    """Line and offset of each line that holds the text, found the slow way."""
    result, offset = [], 0
    for number, line in enumerate(log.split(b"\n"), 1):
        if text.lower().encode() in line.lower():
            result.append((number, offset))
        offset += len(line) + 1
    return result


LOG = b"\n".join(
    [
        b"step 1",
        b"an Error and an ERROR",
        b"",
        b"x" * 50 + b"eRRor",
        "größer".encode(),
        b"err",
        b"or",
        b"error",
    ]
    * 3
)


@pytest.mark.parametrize("text", ["error", "ERR", "größer", "x", "step 1", "nothing"])
@pytest.mark.parametrize("log", [LOG, LOG + b"\n", b"", b"error", b"\n\nerror\n"])
def test_lines_and_offsets_are_right_wherever_it_is_cut(monkeypatch, log, text):
    for stretch in (*range(1, 40), 1000):
        monkeypatch.setattr(log_search, "STRETCH_BYTES", stretch)
        result = search(reader(log), len(log), *find_text(text))
        assert [(hit.line, hit.offset) for hit in result.hits] == expected(log, text), stretch
        assert (result.lines, result.is_complete) == (len(result.hits), True)
        assert all(text.lower() in hit.text.lower() for hit in result.hits)


def test_a_search_that_takes_too_long_goes_on_where_it_ended(monkeypatch):
    monkeypatch.setattr(log_search, "STRETCH_BYTES", 7)
    monkeypatch.setattr(log_search, "MOST_SECONDS", -1.0)
    lines, offset, line, result = set(), 0, 1, None
    for _ in range(len(LOG)):
        monkeypatch.setattr(log_search, "STRETCH_BYTES", log_search.STRETCH_BYTES + 7)
        result = search(reader(LOG), len(LOG), *find_text("error"), offset, line)
        lines |= {(hit.line, hit.offset) for hit in result.hits}
        offset, line = result.offset, result.line
        if result.is_complete:
            break
    assert sorted(lines) == expected(LOG, "error")


def test_more_lines_than_are_wanted_are_counted():
    log = b"error\n" * 5000
    result = search(reader(log), len(log), *find_text("error"), most=10)
    assert (len(result.hits), result.lines) == (10, 5000)


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ("ValueError: no", True), ("Traceback (most recent call last):", True), ("[ERROR] x", True),
        ("torch.cuda.OutOfMemoryError: CUDA", True), ("FATAL: x", True), ("0 errors", False),
        ("error_rate=0.1", False), ("mirror", False), ("terrors", False),
    ],
)  # fmt: skip
def test_the_first_error_is_what_reads_like_one(text, is_error):
    log = f"step 1\n{text}\n".encode()
    result = search(reader(log), len(log), find_error, 200, most=1, stops_at_most=True)
    assert [hit.line for hit in result.hits] == ([2] if is_error else [])


def test_a_line_is_found_by_its_number(monkeypatch):
    for stretch in (1, 5, 1000):
        monkeypatch.setattr(log_search, "STRETCH_BYTES", stretch)
        for number, line in enumerate(LOG.split(b"\n"), 1):
            hit = line_at(reader(LOG), len(LOG), number)
            assert hit is not None and (hit.line, hit.text.encode()) == (number, line)
        assert line_at(reader(LOG), len(LOG), number + 1) is None


def test_fifty_thousand_lines_are_searched_on_the_server(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    log = b"".join(b"%s step %d\n" % (b"ERROR" if i in (7, 31_000) else b"info", i) for i in range(50_000))
    for start in range(0, len(log), 1 << 20):
        node.append(task, "logs/rank0.out", 0, start, log[start : start + (1 << 20)])
    url = f"/api/runs/{run_id}/logs/search"
    result = dashboard.http.get(url, params={"q": "error"}).json()
    assert [hit["line"] for hit in result["hits"]] == [8, 31_001]
    assert (result["lines"], result["is_complete"]) == (2, True)
    hit = result["hits"][1]
    there = dashboard.http.get(f"/api/runs/{run_id}/logs", params={"offset": hit["offset"], "limit": 16}).text
    assert there == "ERROR step 31000" == hit["text"]
    assert dashboard.http.get(url, params={"errors": True}).json()["hits"][0]["line"] == 8
    assert dashboard.http.get(url, params={"line": 50_000}).json()["hits"][0]["text"] == "info step 49999"
    nothing = dashboard.http.get(url, params={"q": "error", "stream": "err"}).json()
    assert (nothing["hits"], nothing["is_complete"]) == ([], True)
    assert dashboard.http.get(url, params={"q": "x", "rank": "9"}).status_code == 404
