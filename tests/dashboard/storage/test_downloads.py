"""Downloads of checkpoints: whole, in parts, resumed, under any name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.object_name import ObjectName
from dashboard.storage.downloads import download_name
from db.checkpoints import checkpoint_queries
from tests.dashboard.running import FakeNode, Running, running

CONTENT = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.long)])
def dashboard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    """One whose checkpoints are on its disk, and one whose are in a bucket: people see no difference."""
    place = {} if request.param == "disk" else {"checkpoints_url": request.getfixturevalue("bucket").url}
    with running(tmp_path / "data", **place) as it:
        yield it


@pytest.fixture
def url(dashboard: Running, node: FakeNode) -> str:
    """The address of a stored checkpoint."""
    dashboard.launch()
    checkpoint_id = node.store_checkpoint(node.task(), CONTENT, "work/checkpoints/step-10.pt")
    return f"/api/checkpoints/{checkpoint_id}/file"


def test_a_download_is_whole_and_says_what_it_is(dashboard: Running, url: str) -> None:
    answer = dashboard.http.get(url)
    assert answer.content == CONTENT
    assert answer.headers["content-length"] == str(len(CONTENT))
    assert answer.headers["x-checksum-sha256"] == SHA256
    assert answer.headers["etag"] == f'"{SHA256}"'
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="step-10.pt"'
    assert "content-encoding" not in answer.headers
    assert "sandbox" in answer.headers["content-security-policy"]


def test_head_tells_the_same_without_the_bytes(dashboard: Running, url: str) -> None:
    head, get = dashboard.http.head(url), dashboard.http.get(url)
    assert head.content == b""
    ignored = ("date",)
    assert {k: v for k, v in head.headers.items() if k not in ignored} == {
        k: v for k, v in get.headers.items() if k not in ignored
    }


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [
        ("bytes=0-99", 0, 100),
        ("bytes=1000-", 1000, len(CONTENT)),
        ("bytes=-5", len(CONTENT) - 5, len(CONTENT)),
        ("bytes=10-99999999999", 10, len(CONTENT)),
    ],
)
def test_parts_are_served(dashboard: Running, url: str, wanted: str, start: int, end: int) -> None:
    answer = dashboard.http.get(url, headers={"Range": wanted, "If-Range": f'"{SHA256}"'})
    assert answer.status_code == 206
    assert answer.content == CONTENT[start:end]
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(CONTENT)}"


def test_a_part_of_other_bytes_becomes_the_whole(dashboard: Running, url: str) -> None:
    answer = dashboard.http.get(url, headers={"Range": "bytes=5-", "If-Range": '"another"'})
    assert (answer.status_code, answer.content) == (200, CONTENT)


def test_a_part_that_is_not_there_is_refused(dashboard: Running, url: str) -> None:
    answer = dashboard.http.get(url, headers={"Range": f"bytes={len(CONTENT)}-"})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(CONTENT)}"
    assert dashboard.http.get(url, headers={"Range": "lines=1-2"}).status_code == 400


def test_known_file_is_not_sent_again(dashboard: Running, url: str) -> None:
    answer = dashboard.http.get(url, headers={"If-None-Match": f'"{SHA256}"'})
    assert (answer.status_code, answer.content) == (304, b"")


def test_missing_or_partial_file_is_not_served(dashboard: Running, node: FakeNode, url: str, tmp_path: Path) -> None:
    assert dashboard.http.get("/api/checkpoints/999/file").status_code == 404
    assert dashboard.http.get("/api/checkpoints/..%2f..%2ftoken/file").status_code in (404, 422)
    task = node.task()
    place = node.client.offer_checkpoint(task, node.offer(task, b"half", "work/half.pt"))
    node.client.send_checkpoint(place.checkpoint_id, 0, b"ha")
    assert dashboard.http.get(f"/api/checkpoints/{place.checkpoint_id}/file").status_code == 409
    lose(dashboard, int(url.split("/")[3]))
    assert dashboard.http.get(url).status_code == 410


def lose(dashboard: Running, checkpoint_id: int) -> None:
    """Somebody deletes the bytes."""
    stored = checkpoint_queries.checkpoint_file(dashboard.service.store, checkpoint_id)
    assert stored is not None
    if stored[0].location is None:
        dashboard.service.files.checkpoint(checkpoint_id).unlink()
    else:
        dashboard.service.storages.s3.delete(ObjectName.parse(stored[0].location))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("work/checkpoints/step-10.pt", "step-10.pt"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("work/..", "checkpoint"),
        ("a\r\nSet-Cookie: x=1", "a__Set-Cookie_ x=1"),
        ('a";x="b.pt', "a_;x=_b.pt"),
        ("gewichte-ü-模型.pt", "gewichte-ü-模型.pt"),
        ("\u202etp.exe", "_tp.exe"),
        ("\udcff.pt", "_.pt"),
        ("C:", "C_"),
        ("x" * 500 + ".pt", "x" * 197 + ".pt"),
        ("", "checkpoint"),
    ],
)
def test_names_are_fit_to_be_file_names(path: str, name: str) -> None:
    assert download_name(path) == name


def test_a_name_in_any_script_arrives(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    checkpoint_id = node.store_checkpoint(node.task(), b"w", "work/模型\r\nX: y.pt")
    headers = dashboard.http.get(f"/api/checkpoints/{checkpoint_id}/file").headers
    expected = "attachment; filename*=utf-8''%E6%A8%A1%E5%9E%8B__X_%20y.pt"
    assert headers["content-disposition"] == expected
    assert "x" not in headers


def test_assets_are_kept_by_browsers_as_long_as_they_are_the_same(dashboard: Running) -> None:
    first = dashboard.http.get("/assets/uPlot.iife.js")
    assert (first.status_code, "javascript" in first.headers["content-type"]) == (200, True)
    etag = first.headers["etag"]
    again = dashboard.http.get("/assets/uPlot.iife.js", headers={"If-None-Match": etag})
    assert (again.status_code, again.content) == (304, b"")
    pinned = dashboard.http.get(f"/assets/uPlot.iife.js?v={etag.strip(chr(34))}")
    assert "immutable" in pinned.headers["cache-control"]
    for name in ("../server.py", "nothing.js", "__init__.py", "%2e%2e%2fserver.py"):
        assert dashboard.http.get(f"/assets/{name}").status_code in (404, 401), name
