"""Stores of every earlier version open with all tables and columns, and committed migrations stay as they are."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from db.engine import Store, StoreUnusable
from db.models import Base
from db.queries import desired_state, run_queries

VERSIONS = Path(__file__).parents[2] / "db" / "migrations" / "versions"
HASHES = {
    "0001_first_light.py": "bfd15117fca13beea172a144cee0717df4ad8429a3eab7406f9b5181ad80779c",
    "0002_any_script.py": "3da729bbf9cb9a8c41520687a75b179f17bad539708b29677cb9d6ae8339c154",
    "0003_many_nodes.py": "caf7fbdbbe980136805a3306f7ce5a374f249779bb898a7909edf96d3aca05f0",
    "0004_through_failures.py": "a3b32b062ecd6e1963ccc84d213d077c4a27ec44def716dd8cfc064900d01669",
    "0005_store_identity.py": "c4a7e924235540a4b00b2dca75872fa7b2f7e63c2ee2ec32af0ea31f5dcb15fc",
    "0006_collectives.py": "14721eca04ea1be463d85f987009a6f5c3bb66aaae445ccfeda268ac8fa63b23",
    "0007_timelines.py": "de12b853aa2c25adde7c6dc3a71483718e5d04c97cb6889bc39b2eb82385cb62",
    "0008_scaling_studies.py": "f601348343c28b33e3c74f929bda920b9c291a347f61a8bbf97b257644186037",
    "0009_profiles.py": "d98877e2a0b6fa03f245f1ea04a2498449c9fc144aa2f2d4e0a976e0b402a2db",
    "0011_sweeps.py": "84b8423b22f3d2e053dcfa41677c44f31eddff6b1d92e4676ae1a89ecdaa11b2",
    "0012_alerts.py": "71f0221582bf86f71a336d8fd45e03eae77716cc58b2d14f2d82ac9e83fb770c",
    "0013_find_runs.py": "61534841a5c767736be71dc77d5351ee6f601b79a10038f257d6c2dbefc0befc",
    "0014_imported_runs.py": "ac2184224fa5062a348d9cc9a30624b74a7500972c95fc660f6cc72d429c8569",
    "0015_baselines.py": "21297db46c95525d909b1cdea22fba5d6593c68b8fde7acdc840614400e7c71c",
    "0016_views.py": "3a74ba7b20459aaa0ffc725f85167191aa08a6906a4245f30771a1733969679a",
    "0017_rungs.py": "fcb6d94f885a446aaccefc8969f6a1a605288dcc034c8d5a5a0d15d2076877cc",
    "0018_shared_links.py": "e28fe73c251a3622ab5f2a78b680b302eb0c6be10f1d54a0bf2bd5a422ea36f4",
    "0019_alert_actions.py": "8ac20210174e04045d5e46eb60ecdcf589dfc06dde8379c2f3ef93097080ac4a",
    "0020_staged_series.py": "7cd94e3ef52873f0a26f209eb71676e011776c131c0b9d52ea9834dbd9124753",
    "0021_listed_runs.py": "5242a187b5c69ca074dd3bfa7267a3cfac65e0e1b1769da0db9d2a6f1109c0f5",
    "0022_sent_again.py": "993f226f4622674cc3555642c78f829dc3b76ed55a85f2b2fc01332594739ae9",
}
STATEMENTS = Path(__file__).parent / "older_stores"
"""What each migration did when it was committed: 0002 and 0004 grew by these steps while stores already used them."""
STEPS = sorted(path.stem for path in STATEMENTS.glob("*.sql"))
OLDER = {
    **{f"up to {step}": [s for s in STEPS if s <= step] for step in STEPS},
    **{f"up to {step} without 0002b": [s for s in STEPS if s <= step and s != "0002b"] for step in STEPS[3:]},
}
ROWS = """
insert into runs (id, name, project, spec, created_at)
    values ('abcdefghij', 'n', 'p', '{"target": "digits", "gpus_per_node": 1}', 1.0);
insert into nodes (id, name, instance_id, token_hash, hostname, address, devices, labels, info, first_seen, last_seen)
    values ('n1', 'a', 'i', 't', 'h', '127.0.0.1', '[]', '{}', '{}', 1.0, 2.0);
insert into attempts (fence, run_id, number, created_at, state, started_at)
    values (1, 'abcdefghij', 1, 1.0, 'running', 2.5);
insert into parts (fence, node_rank, node_id, device_kind, devices, state)
    values (1, 0, 'n1', 'cpu', '["cpu:0"]', 'running');
insert into series (fence, node_rank, source, tag, count, first_step, last_step, first_wall, last_wall, last_value,
                    finite_sum, finite_count)
    values (1, 0, 'events', 'half', 1, 1, 1, 1.0, 1.0, x'000000000000e03f', 0.5, 1),
           (1, 0, 'events', 'nan', 1, 1, 1, 1.0, 1.0, x'000000000000f87f', 0.0, 0);
insert into chunks (series_id, level, seq, count, step_min, step_max, points)
    values (1, 0, 0, 1, 1, 1, x'0100000000000000000000000000e03f000000000000f03f'),
           (2, 0, 0, 1, 1, 1, x'0100000000000000000000000000f87f000000000000f03f');
"""


def test_committed_migrations_are_never_edited() -> None:
    """Stores that ran one do not run it again: a change needs a file of its own, whose hash is added here."""
    now = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VERSIONS.glob("0*.py")}
    assert now == HASHES


@pytest.mark.parametrize("steps", OLDER.values(), ids=OLDER.keys())
def test_a_store_of_any_earlier_version_opens_whole(steps: list[str], tmp_path: Path) -> None:
    file = older_store(tmp_path / "rankzero.db", steps)
    store = Store.open(file, tmp_path / "backups")
    try:
        with store._writer.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        (wished,) = desired_state.assignments(store, "n1")
        assert (wished.run_id, wished.may_start) == ("abcdefghij", True)
        assert run_queries.run(store, "abcdefghij", 3.0) is not None
        with store.read() as session:
            rows = session.execute(text("select tag, last_number, lowest from series order by tag")).all()
            assert [tuple(row) for row in rows] == [("half", 0.5, 0.5), ("nan", None, None)]
            assert session.execute(text("select count(*) from chunks")).scalar_one() == 2
    finally:
        store.close()
    (copy,) = (tmp_path / "backups").glob("*.db")
    with sqlite3.connect(copy) as connection:
        assert connection.execute("select state from attempts").fetchall() == [("running",)]
    connection.close()


@pytest.mark.parametrize("lost", ["alter table parts drop column stacks", "drop index ix_checks_ended_at"])
def test_what_is_missing_in_a_current_store_is_added(store, store_url: str, lost: str) -> None:
    with store.write() as session:
        session.execute(text(lost))
    store.close()
    again = Store.open(store_url)
    with again._writer.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    again.close()


def test_a_store_without_a_column_that_cannot_be_added_is_refused_by_its_name(tmp_path: Path) -> None:
    Store.open(tmp_path / "rankzero.db").close()
    with sqlite3.connect(tmp_path / "rankzero.db") as connection:
        connection.execute("alter table runs drop column name")
        connection.execute("alter table parts drop column stacks")
    connection.close()
    before = schema_of(tmp_path / "rankzero.db")
    with pytest.raises(StoreUnusable, match=r"lacks the column runs\.name"):
        Store.open(tmp_path / "rankzero.db", tmp_path / "backups")
    assert schema_of(tmp_path / "rankzero.db") == before


def older_store(file: Path, steps: list[str]) -> Path:
    """A store as the program made it that had these steps of the migrations."""
    connection = sqlite3.connect(file)
    for step in steps:
        connection.executescript((STATEMENTS / f"{step}.sql").read_text())
    connection.execute("create table alembic_version (version_num varchar(32) not null primary key)")
    connection.execute("insert into alembic_version values (?)", (steps[-1][:4],))
    connection.executescript(ROWS)
    if "0004d" in steps:
        connection.execute("update attempts set preflighted_at = started_at")
    connection.commit()
    connection.close()
    return file


def schema_of(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    rows = connection.execute("select sql from sqlite_master order by name").fetchall()
    connection.close()
    return [row[0] for row in rows]
