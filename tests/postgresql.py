"""A PostgreSQL of the tests' own: a private cluster behind a Unix socket, and a database for each test."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from db.engine import Store

NEEDED = "needs PostgreSQL: apt-get install postgresql (tests/setup does it where it may)"
GUARDED = "guarded"
"""The user who must show a password; the others are trusted."""
PASSWORD = "correct-horse-battery"
TEMPLATE = "rankzero_template"
ACCESS = f"local all {GUARDED} scram-sha-256\nlocal all all trust\n"
SCHEMA = """
select md5(string_agg(concat_ws(' ', attrelid, attname, atttypid, attnotnull), ',' order by attrelid, attnum))
|| (select coalesce(string_agg(concat(tgname, tgenabled), ' ' order by tgname), '')
    from pg_trigger where not tgisinternal)
from pg_attribute join pg_class on pg_class.oid = attrelid where relnamespace = 'public'::regnamespace
"""
EMPTY = """
do $$
declare each record; filled boolean;
begin
    perform pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid();
    set local session_replication_role = replica;  -- foreign keys in whatever order
    for each in select tablename as name from pg_tables
            where schemaname = 'public' and tablename <> 'alembic_version' loop
        execute format('select exists (select from %I)', each.name) into filled;
        if pg_relation_size(format('%I', each.name)) > 262144 then
            execute format('truncate %I cascade', each.name);  -- also what was deleted before
        elsif filled then
            execute format('delete from %I', each.name);  -- a truncated table is several new files
        end if;
    end loop;
    if to_regclass('users') is not null then  -- the migrations make this row
        insert into users (name, role, created_at, sessions_since) values ('owner', 'owner', 0, 0);
    end if;
    perform setval(format('%I', sequencename), start_value, false) from pg_sequences where last_value is not null;
end $$
"""
OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "autovacuum": "off",
    "lc_messages": "C",
}


class Cluster:
    """One server in a folder of its own; PostgreSQL refuses root, so there it runs as somebody harmless."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._numbers = itertools.count(1)
        self._schema: str | None = None
        self._used: list[str] = []
        """Databases that earlier tests are done with."""
        # A socket's path may have 107 characters at most, so pytest's own folders are too deep.
        self.folder = Path(tempfile.mkdtemp(prefix="rz-pg-", dir="/tmp"))
        self._data = self.folder / "data"
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user: list[str] = []
        if os.getuid() == 0:
            user = _harmless_user()
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as_user = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]

    def create(self) -> None:
        """Make the cluster, start it, and make the template that every test's database is a copy of."""
        argv = [self._binaries / "initdb", "-D", self._data, "-U", "rankzero", "-A", "trust", "--no-sync"]
        argv += ["--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"]
        done = subprocess.run(self._command(argv), capture_output=True, text=True, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        (self._data / "pg_hba.conf").write_text(ACCESS)
        self.start()
        self.execute(f"create role {GUARDED} login superuser password '{PASSWORD}'")
        self.execute(f"create database {TEMPLATE}")
        Store.open(self.url(TEMPLATE)).close()
        self._schema = self._schema_of(TEMPLATE)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = [part for name, value in OPTIONS.items() for part in ("-c", f"{name}={value}")]
        argv = [self._binaries / "postgres", "-D", self._data, "-k", self.folder, *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command(argv), stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + 300
        while True:
            try:
                self.execute("select 1")
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None and time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server and whoever is connected; its data stays."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(300)

    def remove(self) -> None:
        """Nothing of it is left."""
        if self._process is not None and self._process.poll() is None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder)

    def url(self, database: str, user: str = "rankzero", password: str | None = None) -> str:
        """Where a database is, as RANKZERO_DATABASE_URL takes it."""
        who = f"{user}:{password}" if password else user
        return f"postgresql+psycopg://{who}@/{database}?host={self.folder}"

    @contextmanager
    def database(self, template: str = TEMPLATE) -> Iterator[str]:
        """The URL of a database for one test, made from a template."""
        name = f"test{next(self._numbers)}"
        self._execute_alone(f"create database {name} template {template}")
        try:
            yield self.url(name)
        finally:
            self._execute_alone(f"drop database {name} with (force)")

    @contextmanager
    def emptied_database(self) -> Iterator[str]:
        """The URL of a database for one test: an earlier test's without its rows, for it takes long to make one."""
        name = self._used.pop() if self._used else f"test{next(self._numbers)}"
        if self._schema_of(name) != self._schema:
            self._execute_alone(f"drop database if exists {name} with (force)")
            self._execute_alone(f"create database {name} template {TEMPLATE}")
        try:
            self.execute(EMPTY, name)
            yield self.url(name)
        finally:
            self._used.append(name)

    def _schema_of(self, database: str) -> str | None:
        """What its tables look like; None if there is no such database."""
        with suppress(psycopg.OperationalError):
            return self.execute(SCHEMA, database)
        return None

    def _execute_alone(self, statement: str) -> None:
        """Run what wants nobody else on a database: on a busy machine one who leaves is there for seconds."""
        deadline = time.monotonic() + 300
        while True:
            try:
                self.execute(statement)
                return
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise

    def execute(self, statement: str, database: str = "postgres") -> str | None:
        """Run a statement as the server's owner; returns the only value, if it has one."""
        where = f"host={self.folder} user=rankzero dbname={database}"
        with psycopg.connect(where, autocommit=True) as connection:
            done = connection.execute(statement)  # type: ignore[call-overload]
            return str(done.fetchone()[0]) if done.description else None

    def _command(self, argv: list[str | Path]) -> list[str]:
        # However the tests end, the server ends with them.
        return ["setpriv", "--pdeathsig=INT", *self._as_user, "--", *map(str, argv)]


def binaries() -> Path | None:
    """Where initdb and postgres are; Debian keeps them off the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    for folder in reversed(folders):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A running server for a session of tests; without the programs they are skipped, which CI forbids."""
    folder = binaries()
    if folder is None or shutil.which("setpriv") is None:
        pytest.skip(NEEDED)
    running = Cluster(folder)
    try:
        running.create()
        yield running
    finally:
        running.remove()


def _harmless_user() -> pwd.struct_passwd:
    names = {each.pw_name for each in pwd.getpwall()}
    return pwd.getpwnam("postgres" if "postgres" in names else "nobody")
