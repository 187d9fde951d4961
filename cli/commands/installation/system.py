"""`rankzero doctor, migrate-store`: check the installation, and copy the store to PostgreSQL."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import extras
from cli.commands.installation import drill
from cli.extras import require
from cli.server.client import ServerClient, find_server
from cli.server.options import Data, Json
from cli.terminal import CommandFailed, print_json, say
from dashboard.object_name import ObjectName
from dashboard.security.keys.token_files import join_token_path, metrics_token_path
from domain.clients.addresses import data_directory
from domain.text import formats


def doctor(
    restore_drill: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Try the newest backup in DIR: restore it into a temporary folder, and count."
        ),
    ] = None,
    collect: Annotated[
        bool, typer.Option("--collect", help="Delete files without a row; ask nodes for checkpoints without a file.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before --collect.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Check this installation; exit code 1 if something needs attention.

    Raises typer.Exit with code 1 for a failed check."""
    if restore_drill is not None:
        return drill.drill(restore_drill, as_json)
    if collect:
        return drill.collect(data, yes, as_json)
    checks = list(examine(data_directory(data)))
    if as_json:
        print_json([{"check": check.name, "ok": check.ok, "message": check.message} for check in checks])
    else:
        for check in checks:
            say(f"{'ok  ' if check.ok else 'LOOK'}  {check.name}: {check.message}")
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


# `rankzero migrate-store`: copy the store from its SQLite file to PostgreSQL.

DATABASE_URL = "RANKZERO_DATABASE_URL"


def migrate_store(
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="The SQLite store.", show_default="the data directory's"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="An empty PostgreSQL database.", show_default=DATABASE_URL),
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Copy an SQLite store to PostgreSQL; the SQLite file is left unchanged.

    Raises CommandFailed for a store or database that cannot be used."""
    require("migrate-store", "server")
    from dashboard.private_files import AlreadyRunning, lock_data_directory
    from db.copy_store import NotMoved, copy_store, sqlite_file

    folder = data_directory(data)
    url = _target(target)
    try:
        file = sqlite_file(source or str(folder / "rankzero.db"))
        with lock_data_directory(file.parent):
            rows = copy_store(file, url, lambda table, count: None if as_json else say(f"{table}: {count}"))
    except (NotMoved, AlreadyRunning) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{error.filename} cannot be used: {error.strerror}.") from None
    if as_json:
        print_json({"from": str(file), "rows": rows})
        return
    total = sum(rows.values())
    say(f"{total} rows of {len(rows)} tables copied and compared; {file} is unchanged.")
    say(f"Start the dashboard with {DATABASE_URL} set and the same --data: logs and checkpoints stay there.")


def _target(option: str | None) -> str:
    """Return the target's URL; a password in an argument is rejected because everybody on the machine can read it."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    url = option or os.environ.get(DATABASE_URL)
    if not url:
        raise CommandFailed(f"--to is needed, or {DATABASE_URL}: postgresql+psycopg://USER@HOST/DATABASE", 2)
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise CommandFailed("--to is not a URL: use postgresql+psycopg://USER@HOST/DATABASE", 2) from None
    if option and (parsed.password or "password" in parsed.query):
        raise CommandFailed(
            "--to must not contain the password, because others on this machine could read it: put it "
            f"into PGPASSWORD or ~/.pgpass, or the whole URL into {DATABASE_URL}.",
            2,
        )
    return url


# Check an installation: every check reports its finding and, where needed, a fix.

LOW_DISK_BYTES = 5 * formats.GIB
NAMED_IN_FORECAST = 3
LOW_SHARED_MEMORY_BYTES = formats.GIB // 4
FEW_OPEN_FILES = 1024
OLDEST_TORCH = (2, 4)
SAFE_TORCH = (2, 10)
"""In older versions a crafted checkpoint could bypass `weights_only=True` (CVE-2026-24747)."""
SAFE_SQLITE = (3, 51, 3)
"""In older versions concurrent checkpointing connections could corrupt a store; we use one writer."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str
    ok: bool
    message: str


def examine(data: Path) -> Iterator[CheckResult]:
    """Run every check in the order of their dependencies; each takes a few seconds at most."""
    checks: list[tuple[str, Callable[[], tuple[bool, str]]]] = [
        ("python", _python),
        ("torch", _torch),
        ("sqlite", _sqlite),
        ("data directory", lambda: _data(data)),
        ("store", lambda: _store(data)),
        ("checkpoints", _checkpoints),
        ("files", lambda: _files(data)),
        ("disk space", lambda: _disk(data)),
        ("ended attempts", lambda: _ended_attempts(data)),
        ("tokens", lambda: _tokens(data)),
        ("secrets", lambda: _secrets(data)),
        ("shared memory", _shared_memory),
        ("open files", _open_files),
        ("host name", _host_name),
        ("GPUs", _gpus),
        ("dashboard", lambda: _dashboard(data)),
    ]
    for name, check in checks:
        try:
            yield CheckResult(name, *check())
        except Exception as error:  # a check that breaks is a finding, not a reason to hide the others
            yield CheckResult(name, False, f"could not be checked: {error or type(error).__name__}.")


def _python() -> tuple[bool, str]:
    if sys.platform != "linux":
        return (
            True,
            f"{platform.python_version()} on {sys.platform}: dashboard and commands; workers need Linux.",
        )
    return True, f"{platform.python_version()} at {sys.executable}."


def _torch() -> tuple[bool, str]:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return (
            False,
            "is not installed here: give --python with an environment that has it, or `pip install 'rankzero[torch]'`.",
        )
    numbers = _numbers(version)[:2]
    if numbers < OLDEST_TORCH:
        return False, f"{version} is too old: trainings need 2.4 or newer."
    if numbers < SAFE_TORCH:
        return True, f"{version}; from 2.10 on it is safer to load checkpoints from untrusted sources."
    return True, f"{version}."


def _sqlite() -> tuple[bool, str]:
    version = sqlite3.sqlite_version
    if _numbers(version) < SAFE_SQLITE:
        return True, f"{version}; do not let other programs write to the store (fixed in SQLite 3.51.3)."
    return True, f"{version}."


def _data(data: Path) -> tuple[bool, str]:
    if not data.exists():
        return True, f"{data} does not exist yet; the first start creates it."
    if not os.access(data, os.W_OK | os.X_OK):
        return False, f"{data} cannot be written by this user; choose another with --data."
    mode = stat.S_IMODE(data.stat().st_mode)
    if mode & 0o022:
        return False, f"{data} can be written by others (mode {mode:o}): chmod 700 {data}"
    return True, f"{data}."


def _store(data: Path) -> tuple[bool, str]:
    url = os.environ.get("RANKZERO_DATABASE_URL")
    if not url:
        from db.sqlite import ON_NETWORK, network_of

        file = data / "rankzero.db"
        if network := network_of(file):
            return False, ON_NETWORK.format(file=file, network=network)
        return True, f"the SQLite file {file}."
    from db import postgres
    from db.trouble import StoreUnusable

    files = os.environ.get("RANKZERO_FILES") or str(data / "files")
    try:
        address, version = postgres.look_at(url)
    except StoreUnusable as error:
        return False, str(error)
    shared = "every dashboard on it needs this same folder of files"
    return True, f"PostgreSQL {version} at {address}; {shared}: {files}."


def _checkpoints() -> tuple[bool, str]:
    url = os.environ.get("RANKZERO_CHECKPOINTS_URL")
    if not url:
        return True, "in the directory of files."
    from dashboard.storage.bucket import refuses_wrong_bytes, try_out
    from dashboard.storage.s3 import S3, BucketTrouble

    s3 = S3()
    try:
        folder = ObjectName.parse(url)
        refuses = refuses_wrong_bytes(s3, folder)
        try_out(s3, folder)
    except (BucketTrouble, ValueError) as error:
        return False, str(error)
    verification = (
        "it verifies each part" if refuses else "it verifies no checksums, so each checkpoint is read back once"
    )
    return True, f"{url} at {s3.endpoint}: read and written; {verification}."


def _files(data: Path) -> tuple[bool, str]:
    if os.environ.get(DATABASE_URL):
        return True, "not compared: the store is on PostgreSQL."
    return drill.files_check(data)


def _disk(data: Path) -> tuple[bool, str]:
    folder = next(path for path in (data, *data.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    message = f"{formats.size(free)} free for {data}."
    if free < LOW_DISK_BYTES:
        return False, f"{message} Checkpoints may not fit."
    forecast = _forecast(data)
    if forecast is None or not forecast["is_soon"]:
        return True, message if forecast is None else f"{message} Of the dashboard's files: {forecast['sentence']}."
    advice = "; ".join(one["command"] for one in forecast["deletable"][:NAMED_IN_FORECAST])
    return False, f"{forecast['sentence']}. Set a rule (`rankzero retention set`){f', or: {advice}' if advice else ''}."


def _ended_attempts(data: Path) -> tuple[bool, str]:
    if not (data / "runs").is_dir():
        return True, "no attempt has trained here."
    from worker.trainings.ended_attempts import held_bytes, removable

    if not (attempts := removable(data)):
        return True, "none whose folder is to be removed."
    held, is_all = held_bytes(attempts)
    folders = formats.plural(len(attempts), "folder")
    message = f"{folders} {formats.agree(len(attempts), 'holds', 'hold')} {'' if is_all else 'more than '}"
    return True, f"{message}{formats.size(held)} that `rankzero worker --keep-attempts 7d` removes after a week."


def _forecast(data: Path) -> dict[str, Any] | None:
    """The running dashboard's forecast of its disk; None where none runs here."""
    if not (data / "server.json").exists():
        return None
    try:
        return dict(ServerClient(find_server(data)).get("/api/storage"))
    except CommandFailed:  # the check of the dashboard says why
        return None


def _tokens(data: Path) -> tuple[bool, str]:
    files = [path for path in (data / "token", join_token_path(data), metrics_token_path(data)) if path.exists()]
    if not files:
        return True, "none yet; the first start creates them."
    if warning := next(filter(None, map(_exposed, files)), None):
        return False, warning
    return True, "readable by their owner only."


def _exposed(path: Path) -> str | None:
    """Return a warning where others can read a file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"{path} can be read by others (mode {mode:o}): chmod 600 {path}" if mode & 0o077 else None


def _secrets(data: Path) -> tuple[bool, str]:
    """Try the key on each secret of the store."""
    where = os.environ.get(DATABASE_URL) or data / "rankzero.db"
    if isinstance(where, Path) and not where.exists():
        return True, "none yet."
    from dashboard.security.keys.secret_key import SecretKey, SecretsUnreadable
    from db.people import stored_secrets
    from db.trouble import StoreUnusable

    path = Path(os.environ.get("RANKZERO_SECRET_KEY_FILE") or data / "secret-key")
    if path.exists() and (warning := _exposed(path)):
        return False, warning
    key = SecretKey(path, lambda: True)
    try:
        stored = stored_secrets.looked_up(where)
        for secret in stored:
            key.decrypt(secret.ciphertext, secret.owner.user, secret.owner.project, secret.name)
    except (SecretsUnreadable, StoreUnusable) as error:
        return False, str(error)
    return True, f"the key in {path} opens all {len(stored)}; keep a copy of it elsewhere." if stored else "none yet."


def _shared_memory() -> tuple[bool, str]:
    if not Path("/dev/shm").is_dir():
        return True, "no /dev/shm on this platform."
    total = shutil.disk_usage("/dev/shm").total
    if total < LOW_SHARED_MEMORY_BYTES:
        return (
            False,
            f"/dev/shm has {formats.size(total)}; data loaders and NCCL need more (docker: --shm-size=8g).",
        )
    return True, f"/dev/shm has {formats.size(total)}."


def _open_files() -> tuple[bool, str]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FEW_OPEN_FILES:
        return False, f"only {soft} at a time: ulimit -n {min(65536, hard)}"
    return True, f"{soft} at a time."


def _host_name() -> tuple[bool, str]:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return False, f"{name} has no address; add `127.0.1.1 {name}` to /etc/hosts, gloo looks it up."
    return True, f"{name} is {address}."


def _gpus() -> tuple[bool, str]:
    if not extras.is_installed("nvidia-ml-py"):
        return True, "not looked for: `rankzero worker` is not installed here."
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return True, "none (no NVIDIA driver): ranks train on CPU cores, with gloo."
    count = pynvml.nvmlDeviceGetCount()
    names = {str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i))) for i in range(count)}
    return True, f"{count} x {', '.join(sorted(names))}."


def _dashboard(data: Path) -> tuple[bool, str]:
    if not (data / "server.json").exists() and not os.environ.get("RANKZERO_URL"):
        return True, "not running; `rankzero up` starts it."
    folder = None if os.environ.get("RANKZERO_URL") else data
    try:
        server = ServerClient(find_server(folder))
        nodes = server.get("/api/nodes")
    except CommandFailed as error:
        return False, str(error)
    if server.address.ca_file and (warning := _end_of_certificate(server.address.ca_file)):
        return False, warning
    online = [node for node in nodes if node["state"] == "alive"]
    if not online:
        return False, f"{server.address.url} answers, but no node is online; start `rankzero worker`."
    slots = sum(node["slots"] for node in online)
    return True, f"{server.address.url} with {formats.plural(len(online), 'online node')}, {slots} slots."


def _end_of_certificate(file: Path) -> str | None:
    if not extras.is_installed("cryptography"):
        return None
    from dashboard.security.keys.certificates import end_warning

    return end_warning(file)


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.partition("+")[0].split(".")
    return tuple(int(part) for part in parts if part.isdecimal())
