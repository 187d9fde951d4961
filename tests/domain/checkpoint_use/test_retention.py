"""Retention rules: read, printed, and what they keep and let go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.checkpoint_use.retention import (
    KEEP_ALL,
    Best,
    LoggedMetric,
    RetentionClauses,
    SavedCheckpoint,
    kept,
    parse,
    saves_of,
    text_of,
)
from domain.requests.errors import InvalidRequest


def saved(number: int, step: int | None = None, attempt: int = 1, **more) -> SavedCheckpoint:
    given = {"step": 10 * number if step is None else step, "written_at": 100.0 * number, "attempt": attempt} | more
    return SavedCheckpoint(id=number, **given)


def kept_ids(rule: RetentionClauses | None, files, metrics=None) -> list[int]:
    saves = saves_of(files)
    reasons = kept(rule, saves, metrics or {})
    return sorted(file.id for save, why in zip(saves, reasons, strict=True) if why for file in save.files)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("last 2", RetentionClauses(last=2)),
        ("Last 3, pinned", RetentionClauses(last=3)),
        ("pinned", RetentionClauses()),
        ("best 1 by val/loss", RetentionClauses(best=(Best(1, "val/loss", False),))),
        ("best 2 by val/acc", RetentionClauses(best=(Best(2, "val/acc", True),))),
        ("best 2 by my score highest", RetentionClauses(best=(Best(2, "my score", True),))),
        ("every 10,000 steps", RetentionClauses(every=10_000)),
        ("every 1,000,000 steps,last 2", RetentionClauses(last=2, every=1_000_000)),
        ("last 2,best 1 by loss,best 1 by acc", RetentionClauses(2, (Best(1, "loss", False), Best(1, "acc", True)))),
    ],
)
def test_a_rule_is_read(text, rule):
    assert parse(text) == rule


@pytest.mark.parametrize("text", ["keep all", "Keep All", "all"])
def test_keeping_all_is_no_rule(text):
    assert parse(text) is None
    assert text_of(None) == KEEP_ALL


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a part of it is empty"),
        ("last 2,", "a part of it is empty"),
        ("last 0", "'last 0' is no part of a rule"),
        ("last two", "'last two' is no part of a rule"),
        ("best by loss", "is no part of a rule"),
        ("keep all, last 2", "'keep all' is no part of a rule"),
        ("last 1, last 2", "it says the same twice"),
        ("best 1 by loss, best 2 by loss", "it says the same twice"),
        ("last 1" + " " * 500, "more than 400 characters"),
    ],
)
def test_a_wrong_rule_is_refused_with_an_example(text, problem):
    with pytest.raises(InvalidRequest, match="best 1 by val/loss") as refusal:
        parse(text)
    assert problem in str(refusal.value)


metrics_names = st.sampled_from(["loss", "val/acc", "my score"])
bests = st.builds(Best, st.integers(1, 4), metrics_names, st.booleans())
rules = st.builds(
    RetentionClauses,
    st.integers(0, 4),
    st.lists(bests, max_size=3, unique_by=lambda best: best.metric).map(tuple),
    st.sampled_from([0, 7, 1000, 25_000]),
)


@given(rules)
def test_what_is_printed_is_read_as_the_same_rule(rule):
    assert parse(str(rule)) == rule


def test_the_last_and_pinned_ones_are_kept():
    files = [saved(1), saved(2, needed="pinned by ana"), saved(3), saved(4), saved(5)]
    assert kept_ids(RetentionClauses(last=2), files) == [2, 4, 5]


def test_the_last_one_is_kept_by_every_rule():
    assert kept_ids(RetentionClauses(), [saved(1), saved(2), saved(3)]) == [3]


def test_of_each_stretch_the_first_is_kept():
    files = [saved(number, step=step) for number, step in enumerate((500, 1000, 1500, 2003, 2500, 2999), 1)]
    assert kept_ids(RetentionClauses(every=1000), files) == [2, 4, 6]


def test_the_best_are_those_of_the_lowest_or_highest_value():
    files = [saved(number) for number in range(1, 6)]
    logged = {"x": {1: LoggedMetric([10, 20, 30, 40, 50], [5.0, 1.0, 9.0, 2.0, 3.0], [10, 20, 30, 40, 50])}}
    assert kept_ids(RetentionClauses(best=(Best(1, "x", False),)), files, logged) == [2, 5]
    assert kept_ids(RetentionClauses(best=(Best(1, "x", True),)), files, logged) == [3, 5]


def test_a_value_logged_a_little_later_belongs_to_the_save():
    files = [saved(1), saved(2), saved(3)]
    logged = {"x": {1: LoggedMetric([11, 21], [1.0, 2.0], [10, 20, 30])}}
    assert kept_ids(RetentionClauses(best=(Best(1, "x", False),)), files, logged) == [1, 3]


def test_nothing_goes_while_its_value_may_still_come():
    files = [saved(1), saved(2), saved(3), saved(4)]
    logged = {"x": {1: LoggedMetric([10], [1.0], [10, 20, 30, 40], goes_on=True)}}
    assert kept_ids(RetentionClauses(best=(Best(1, "x", False),)), files, logged) == [1, 2, 3, 4]
    ended = {"x": {1: replace(logged["x"][1], goes_on=False)}}
    assert kept_ids(RetentionClauses(best=(Best(1, "x", False),)), files, ended) == [1, 4]


def test_nothing_goes_by_a_metric_that_was_never_logged():
    files = [saved(1), saved(2), saved(3)]
    assert kept_ids(RetentionClauses(last=1, best=(Best(1, "val/los", False),)), files) == [1, 2, 3]


def test_the_files_of_one_save_are_kept_or_go_together():
    files = [
        saved(1, step=10, written_at=100.0), saved(2, step=10, written_at=103.0),
        saved(3, step=20, written_at=101.0), saved(4, step=20, written_at=104.0),
        SavedCheckpoint(5, 1, None, 104.5, is_part=True),
    ]  # fmt: skip
    assert kept_ids(RetentionClauses(last=1), files) == [3, 4, 5]
    assert kept_ids(RetentionClauses(), [replace(files[0], needed="pinned"), *files[1:]]) == [1, 2, 3, 4, 5]


def test_what_a_rollback_left_behind_is_neither_last_nor_best():
    files = [saved(1), saved(2), saved(3, is_left_behind=True)]
    assert kept_ids(RetentionClauses(last=1), files) == [2]


def test_the_newest_without_a_step_is_kept():
    files = [saved(1), SavedCheckpoint(2, 1, None, 150.0), SavedCheckpoint(3, 1, None, 250.0), saved(4), saved(5)]
    assert kept_ids(RetentionClauses(last=1), files) == [3, 5]


files_of_runs = st.lists(
    st.builds(
        SavedCheckpoint,
        id=st.integers(1, 10_000),
        attempt=st.integers(1, 3),
        step=st.none() | st.integers(0, 40).map(lambda number: 5 * number),
        written_at=st.integers(0, 400).map(float),
        is_part=st.sampled_from([False, False, False, True]),
        needed=st.sampled_from([None, None, None, "pinned"]),
        is_left_behind=st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=25,
    unique_by=lambda file: file.id,
)
values = st.dictionaries(st.integers(0, 200), st.sampled_from([1.0, 2.0, 3.0]), max_size=20)
series = st.dictionaries(st.integers(1, 3), st.tuples(values, st.booleans()), max_size=3)


def logged_of(files, points) -> dict:
    return {
        name: {
            attempt: LoggedMetric(
                sorted(values), [values[step] for step in sorted(values)],
                sorted(file.step for file in files if file.attempt == attempt and file.step is not None), goes_on,
            )
            for attempt, (values, goes_on) in by_attempt.items()
        }
        for name, by_attempt in points.items()
    }  # fmt: skip


@given(rules, files_of_runs, st.dictionaries(metrics_names, series, max_size=3))
def test_no_rule_lets_go_what_is_needed_or_the_last_one(rule, files, points):
    staying = set(kept_ids(rule, files, logged_of(files, points)))
    assert {file.id for file in files if file.needed} <= staying
    assert staying
    assert saves_of(files)[-1].counts <= (saves_of(files)[-1].files[0].id in staying)


@given(rules, files_of_runs, st.dictionaries(metrics_names, series, max_size=3))
def test_a_rule_that_was_applied_lets_nothing_more_go(rule, files, points):
    logged = logged_of(files, points)  # with the steps of what was deleted, as the store has them
    staying = set(kept_ids(rule, files, logged))
    remaining = [file for file in files if file.id in staying]
    assert set(kept_ids(rule, remaining, logged)) == staying
