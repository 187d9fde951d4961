"""What browsers load first: packed where they take it, the same content where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from dashboard.app.assets import Assets
from dashboard.app.front import EntryPage, Front

SHIPPED = Path(streamlit.__file__).parent / "static"
SCRIPT = next((SHIPPED / "static/js").glob("index.*.js"))
UNPACKED = {"Accept-Encoding": "identity"}


@pytest.fixture
def http() -> Iterator[TestClient]:
    """A client of the entry page, with a Streamlit that says only that it was asked."""
    app, assets = FastAPI(), Assets()
    app.add_route("/assets/{name:path}", assets.serve, methods=["GET", "HEAD"])
    Front(EntryPage(assets), PlainTextResponse("Streamlit")).install(app)
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize("path", ["/assets/charts/charts.js", "/assets/uPlot.min.css", "/nodes"])
def test_what_is_ours_is_packed_for_clients_that_take_it(http: TestClient, path: str) -> None:
    packed, plain = http.get(path), http.get(path, headers=UNPACKED)
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2


def test_streamlits_scripts_are_packed_and_kept_by_browsers(http: TestClient) -> None:
    answer = http.get(f"/static/js/{SCRIPT.name}")
    assert answer.content == SCRIPT.read_bytes()
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    assert int(answer.headers["content-length"]) < len(answer.content) / 2


@pytest.mark.parametrize("path", ["/static/js/nothing.js", "/static/js/..%2F..%2Findex.html", "/static/media/x.woff2"])
def test_other_files_are_left_to_streamlit(http: TestClient, path: str) -> None:
    assert http.get(path).text == "Streamlit"


def test_a_client_that_takes_nothing_packed_is_served_by_streamlit(http: TestClient) -> None:
    assert http.get(f"/static/js/{SCRIPT.name}", headers=UNPACKED).text == "Streamlit"


def test_page_of_an_unknown_address_runs_no_script_and_shows_the_address_as_text(http: TestClient) -> None:
    answer = http.get("/<b>x</b>", headers={"Accept": "text/html"})
    assert answer.status_code == 404 and "<b>x" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "script-src" not in policy
