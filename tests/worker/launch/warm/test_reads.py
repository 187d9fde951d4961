"""Which variables an import reads is noted by name; who looks through all of them is named instead."""

from __future__ import annotations

import os

import pytest

from worker.warm.rankzero_warm.reads import Reads


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED_NAME", "x")


WAYS = {
    "get": lambda: os.environ.get("SEED_NAME"),
    "getenv of one that is not set": lambda: os.getenv("SEED_NAME_2"),
    "in": lambda: "SEED_NAME" in os.environ,
    "subscript": lambda: os.environ["SEED_NAME"],
    "bytes": lambda: os.environb.get(b"SEED_NAME"),
    "setdefault": lambda: os.environ.setdefault("SEED_NAME", "y"),
}
WAYS_TO_ALL = {
    "items": lambda: [value for _, value in os.environ.items()],
    "dict": lambda: dict(os.environ),
    "copy": lambda: os.environ.copy(),
    "or": lambda: os.environ | {},
    "names": lambda: list(os.environ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_variable_that_is_read_is_noted(way: str) -> None:
    with Reads() as reads:
        WAYS[way]()
    assert {name.removesuffix("_2") for name in reads.names} == {"SEED_NAME"}
    assert reads.readers_of_all == set()


@pytest.mark.parametrize("way", WAYS_TO_ALL)
def test_who_looks_through_all_is_noted(way: str) -> None:
    with Reads() as reads:
        WAYS_TO_ALL[way]()
    assert reads.readers_of_all == {__name__.partition(".")[0]}


@pytest.mark.parametrize("way", ["items", "names"])
def test_the_names_that_are_only_passed_are_not_noted(way: str) -> None:
    with Reads() as reads:
        WAYS_TO_ALL[way]()
    assert reads.names == set()


def test_a_read_after_a_look_through_all_is_noted() -> None:
    with Reads() as reads:
        last = list(os.environ)[-1]
        os.environ.get(last)
    assert reads.names == {last}


def test_afterwards_nothing_is_noted() -> None:
    before = type(os.environ).__getitem__, type(os.environ).__iter__
    with Reads() as reads:
        pass
    os.environ.get("SEED_NAME")
    assert (type(os.environ).__getitem__, type(os.environ).__iter__) == before
    assert reads.names == set()
