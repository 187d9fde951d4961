"""The pages, driven without a browser over a real service and a seeded store."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from dashboard.clock import Lease
from dashboard.service import service
from dashboard.service.service import Service
from dashboard.settings import Settings
from tests.dashboard import components_once  # noqa: F401  it acts when it is imported
from tests.dashboard.seeded_store import Seed
from tests.db.templates import new_data

APP = str(files("dashboard.views") / "app.py")


@dataclass
class Pages:
    """One dashboard's pages and the store behind them."""

    service: Service
    seed: Seed

    def open(self, page: str = "", **query: str) -> AppTest:
        """The page at that address, run once."""
        test = AppTest.from_file(APP, default_timeout=180)
        for name, value in query.items():
            test.query_params[name] = value
        if page:
            test._page_hash = calc_hash(page)  # AppTest itself can only switch to pages that are files
        return test.run()


@contextmanager
def served(data: Path) -> Iterator[Pages]:
    """Pages over an empty store in that directory."""
    opened = Service.open(Settings(data=new_data(data)))
    opened.lease = Lease(0.0, 0.0)  # awake for long: silence counts
    start, calls = opened.clock(), itertools.count()
    # Nobody falls silent while a busy machine draws a page, and what comes later is later.
    opened.clock = lambda: start + next(calls) * 1e-5
    service.use(opened)
    try:
        yield Pages(opened, Seed(opened.store, opened.clock()))
    finally:
        service.use(None)
        opened.close()


def texts(page: AppTest) -> str:
    """Everything a page says, in one string."""
    said = [*page.markdown, *page.caption, *page.code, *page.error, *page.info, *page.warning, *page.metric]
    return "\n".join(str(element.value) for element in said)


def links(page: AppTest) -> dict[str, str]:
    """The links to our own pages by their labels."""
    drawn = [json.loads(part.proto.json) for part in page.get("bidi_component")
             if part.proto.component_name == "rankzero.page_link"]  # fmt: skip
    return {link["label"]: link["address"] for link in drawn}


def button(page: AppTest, label: str):
    """The button with that label."""
    return next(one for one in page.button if one.label == label)
