"""The pages, driven without a browser over a real service and a seeded store."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from dashboard.clock import AnchoredTime, Lease
from dashboard.service import service
from dashboard.service.service import Service
from dashboard.service.store_opening import open_store
from dashboard.settings import Settings
from db import acting
from db.engine import Store
from domain.people.rights import PROGRAM, Rights
from tests.dashboard import components_once  # noqa: F401  it acts when it is imported
from tests.dashboard.seeded_store import Seed, seed
from tests.db.templates import folder_of_templates, new_data, new_store, without_identity

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


class SlowClock(AnchoredTime):
    """Nobody falls silent while a busy machine draws a page, and what comes later is later."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self._start, self._calls = start, itertools.count()

    def __call__(self) -> float:
        return self._start + next(self._calls) * 1e-5


@contextmanager
def served(data: Path) -> Iterator[Pages]:
    """Pages over an empty store in that directory."""
    with _served(data, None) as (service, now):
        yield Pages(service, Seed(service.store, now))


@contextmanager
def served_full(data: Path) -> Iterator[Pages]:
    """Pages over the seeded store, which is filled once in a process, at the time when that was done."""
    file, filled = _filled()
    data.mkdir(mode=0o700, parents=True)
    shutil.copy(file, data / "rankzero.db")
    with _served(data, filled.now) as (service, now):
        own = replace(filled, store=service.store, now=now, runs=dict(filled.runs))
        yield Pages(service, replace(own, node_ids=dict(filled.node_ids)))


@contextmanager
def _served(data: Path, at: float | None) -> Iterator[tuple[Service, float]]:
    settings = Settings(data=new_data(data))
    opened = Service(settings, open_store(settings), SlowClock(at or AnchoredTime()()))
    opened.lease = Lease(0.0, 0.0)  # awake for long: silence counts
    service.use(opened)
    try:
        yield opened, opened.clock()
    finally:
        service.use(None)
        opened.close()


@contextmanager
def visited_by(pages: Pages, rights: Rights) -> Iterator[Pages]:
    """Have each page ask for this person's rights, as it asks for its visitor's."""
    service.use(pages.service, lambda: acting.enter(rights))
    try:
        yield pages
    finally:
        service.use(pages.service)
        acting.enter(PROGRAM)


@cache
def _filled() -> tuple[Path, Seed]:
    """The file of the seeded store, and what is in it."""
    store = Store.open(new_store(folder_of_templates() / "seeded.db"))
    filled = seed(store, AnchoredTime()())
    without_identity(store)
    return folder_of_templates() / "seeded.db", filled


def texts(page: AppTest) -> str:
    """Everything a page says, in one string."""
    said = [*page.markdown, *page.caption, *page.code, *page.error, *page.info, *page.warning, *page.metric]
    return "\n".join(str(element.value) for element in said)


def links(page: AppTest) -> dict[str, str]:
    """The links to our own pages by their labels."""
    drawn = [json.loads(part.proto.json) for part in page.get("bidi_component")
             if part.proto.component_name == "rankzero.page_link"]  # fmt: skip
    return {link["label"]: link["address"] for link in drawn}


def with_advanced(form: AppTest) -> AppTest:
    """The launch form after its last section was opened, whose fields are drawn only then."""
    form.session_state["launch_more"] = True
    return form.run()


def button(page: AppTest, label: str):
    """The button with that label."""
    return next(one for one in page.button if one.label == label)
