"""Whatever is damaged, importing ends, names what it left out, and everything healthy comes in."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.importers.past_run import LeftOut, PastRun
from cli.importers.table import past_runs
from tests.cli.importers import stores
from tests.cli.importers.stores import POINTS, STORES
from worker.node import run_files

HAS_CHECKSUMS = ("tensorboard", "wandb")
places = st.floats(0, 1, exclude_max=True)
damages = st.one_of(
    st.tuples(st.just("flip"), st.lists(st.tuples(places, st.integers(1, 255)), min_size=1, max_size=4)),
    st.tuples(st.just("zeros"), st.tuples(places, st.integers(1, 600))),
    st.tuples(st.just("cut"), places),
    st.tuples(st.just("content"), st.binary(max_size=60)),
)


def damaged(content: bytes, kind: str, how: object) -> bytes:
    data = bytearray(content)
    match kind, how:
        case "flip", list(flips):
            for place, mask in flips:
                data[int(place * len(data))] ^= mask
        case "zeros", (float(place), int(length)):
            begin = int(place * len(data))
            data[begin : begin + length] = bytes(len(data[begin : begin + length]))
        case "cut", float(place):
            del data[int(place * len(data)) :]
        case "content", bytes(other):
            return other
    return bytes(data)


def read(root: Path) -> tuple[dict[Path, int], LeftOut]:
    """Import as the command does; returns the number of points of each source."""
    left_out, run_counts = LeftOut(), dict[Path, int]()

    def described(format_name: str, run: PastRun) -> str:
        return run.request(format_name, "host", "default").model_dump_json()

    for format_name, run in past_runs(root, left_out):
        for _ in left_out.attempt(run.source, partial(described, format_name, run)):
            groups = left_out.guarded(run.source, run.points())
            points = sum(len(points) for group in groups for points in group.values())
            run_counts[run.source] = run_counts.get(run.source, 0) + points
    return run_counts, left_out


def test_a_schema_that_is_no_text_leaves_out_its_own_store_alone(tmp_path: Path) -> None:
    STORES["trackio"](tmp_path / "healthy")
    file = STORES["trackio"](tmp_path / "damaged")
    file.write_bytes(file.read_bytes().replace(b"CREATE TABLE configs", b"CREATE T\xc1BLE configs"))
    run_counts, left_out = read(tmp_path)
    assert [*run_counts.values()] == [POINTS]
    assert left_out.lines() == [f"{file}: It cannot be read (its schema is damaged)."]


@pytest.mark.parametrize("store", STORES)
def test_any_damage_is_survived_and_told(store: str, tmp_path: Path) -> None:
    if store == "wandb":
        pytest.importorskip("wandb")
    STORES[store](tmp_path / "healthy")
    file = STORES[store](tmp_path / "damaged")
    content = file.read_bytes()
    whole, whole_left_out = read(tmp_path)
    assert [*whole.values()] == [POINTS, POINTS] and not whole_left_out

    @given(damages)
    def survives(damage: tuple[str, object]) -> None:
        file.write_bytes(damaged(content, *damage))
        run_counts, left_out = read(tmp_path)
        assert POINTS in (
            points for source, points in run_counts.items() if source.is_relative_to(tmp_path / "healthy")
        )
        rest = sum(points for source, points in run_counts.items() if not source.is_relative_to(tmp_path / "healthy"))
        if store in HAS_CHECKSUMS and damage[0] in ("flip", "zeros"):
            assert rest == POINTS or left_out
        if left_out:
            assert all(str(tmp_path / "damaged") in line for line in left_out.lines())
        assert read(tmp_path)[0] == run_counts

    survives()
    shutil.rmtree(tmp_path / "damaged")


@pytest.mark.parametrize("store", ["mlflow database", "trackio"])
def test_a_torn_database_gives_the_rows_before_and_is_named(store: str, tmp_path: Path) -> None:
    file = STORES[store](tmp_path / "damaged")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) - 4096])
    run_counts, left_out = read(tmp_path)
    assert file in left_out and sum(run_counts.values()) < POINTS


def test_a_run_of_mlflow_without_its_meta_comes_in_with_its_points(tmp_path: Path) -> None:
    contents = [b"", stores.META.encode()[:90], stores.META.replace("1700000000000", "null").encode()]
    contents += [
        b"user_id: J\xfcrgen\n" + stores.META.encode(),
        b"[" * 5000,
        b"- a list",
        b"start_time: soon\n",
    ]
    for number, content in enumerate(contents):
        stores.mlflow(tmp_path / str(number)).write_bytes(content)
    stores.mlflow(tmp_path / "healthy")
    run_counts, left_out = read(tmp_path)
    assert [*run_counts.values()] == [POINTS] * (len(contents) + 1)
    assert len(left_out) == len(contents) and not any("healthy" in line for line in left_out.lines())


@pytest.mark.parametrize("end", [b"1700000020000", b"1700000020000 0.5", b"\0" * 64, b"\xff\xfe\n"])
def test_a_torn_last_line_costs_that_line_only(end: bytes, tmp_path: Path) -> None:
    file = stores.mlflow_metric(tmp_path)
    file.write_bytes(file.read_bytes() + end)
    run_counts, left_out = read(tmp_path)
    assert [*run_counts.values()] == [POINTS] and file in left_out


def test_a_locked_database_is_waited_for_and_named_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, other = stores.trackio(tmp_path / "locked"), stores.trackio(tmp_path / "other")
    with closing(sqlite3.connect(locked, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Impatient))
        run_counts, left_out = read(tmp_path)
    assert run_counts == {other: POINTS}
    (line,) = left_out.lines()
    assert line.startswith(f"{locked}: It is in use") and Impatient.waited_s == 5.0


class Impatient(sqlite3.Connection):
    """Waits for nobody, and notes how long it should have."""

    waited_s = 0.0

    def __init__(self, *args: Any, timeout: float, **options: Any) -> None:
        Impatient.waited_s = timeout
        super().__init__(*args, timeout=0, **options)


def test_rows_in_a_wal_file_are_read_and_both_files_stay(tmp_path: Path) -> None:
    source = stores.trackio(tmp_path / "source")
    (tmp_path / "left").mkdir()
    copied = [tmp_path / "left" / name for name in ("vision.db", "vision.db-wal")]
    with closing(sqlite3.connect(source)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute(stores.TRACKIO_ROW, ("in words", POINTS, '{"loss": 1, "image": {"_type": "x", "width": 3}}'))
        writer.commit()
        for file in copied:
            shutil.copy(source.parent / file.name, file)  # as a killed writer leaves them
    before = [file.read_bytes() for file in copied]
    run_counts, left_out = read(tmp_path / "left")
    assert run_counts == {copied[0]: POINTS + 1} and not left_out
    assert [file.read_bytes() for file in copied] == before


def test_import_names_a_folder_with_more_entries_than_it_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"{number}/inner").mkdir(parents=True)
    assert read(tmp_path)[1].lines() == []
    monkeypatch.setattr(run_files, "MAX_ENTRIES", 4)
    (line,) = read(tmp_path)[1].lines()
    assert line.startswith(f"{tmp_path}: It has more than") and "not searched" in line
