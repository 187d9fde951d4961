"""The environments on this node's own disk: built once, renamed when complete, verified, removed if unused."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from domain.clock import SYSTEM_CLOCK, Clock
from domain.network.file_systems import NETWORK, type_at
from worker.environments.uv import IsStopped, Stopped
from worker.node.attempt_files import USED_FILE
from worker.node.state_files import is_settled, read_object, write_whole

LOCAL_DISK = Path("/var/tmp")  # nosec B108: only as the place of a folder of this user
ENVIRONMENTS, STAGED = "envs", "staged"
MARK_FILE = "rankzero.json"
"""In each environment: what was installed, written last."""
LOOK_S = 0.2
SHORT_BYTES = 5 << 30
SHORT_SHARE = 0.05
"""Space is short below this share of the disk, and below so many bytes."""
Build = Callable[[Path, int], dict[str, object]]
"""(folder, descriptor of the lock): fill a new folder; returns what its mark says."""


def file_system(path: Path) -> str:
    """Return the type of the file system that a path, existing or not, lies on; "" where that is unknown."""
    return type_at(path.resolve(), {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)})


def is_remote(path: Path) -> bool:
    """Whether the path is on a network file system: uv's cache and locks are not safe there, and imports slow."""
    return file_system(path) in NETWORK


def own_disk(data: Path, name: str = ENVIRONMENTS) -> Path:
    """Return a folder for what is shared: below the worker's data, or on a local disk if those are on the network."""
    return (data if not is_remote(data) else LOCAL_DISK / f"rankzero-{os.getuid()}") / name


def prepared(folder: Path) -> Path:
    """Create a folder of `own_disk`, for this user alone. Raises OSError, also where another user made it."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    places = (folder.parent, folder) if folder.is_relative_to(LOCAL_DISK) else (folder,)
    for place in places:  # everybody may write to the local disk
        if place.lstat().st_uid != os.getuid():
            raise PermissionError(f"{place} belongs to another user")
    return folder


@contextmanager
def locked(path: Path, is_stopped: IsStopped, tell: Callable[[str], None], clock: Clock) -> Iterator[int]:
    """Hold a lock file, waiting until it is free; yields its descriptor. Raises Stopped, OSError."""
    with path.open("w") as file:
        is_told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if is_stopped():
                    raise Stopped from None
                if not is_told:
                    tell("another launch builds it")
                is_told = True
                clock.pause(LOOK_S)
        yield file.fileno()


def ensure(
    root: Path,
    name: str,
    build: Build,
    is_stopped: IsStopped,
    tell: Callable[[str], None],
    *,
    data: Path,
    attempt: Path,
    damage: Callable[[Path], str] | None = None,
    is_fixed: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> bool:
    """Make sure that the environment `name` is complete, building it if necessary; returns whether it was built.

    From then on the attempt in this directory, below the worker's `data`, uses it, and no cleaning removes it.
    One that has changed since it was built, as `damage` says, is built again, unless a run uses it. One that cannot be
    renamed (`is_fixed`) is built at its place, where it counts once it has its mark. Raises what `build` raises,
    Stopped, Changed, OSError."""
    target = root / name
    with locked(root / f"{name}.lock", is_stopped, tell, clock) as descriptor:
        trouble = (damage or damaged)(target)
        if not trouble:
            os.utime(target)  # marks it as recently used
            _note_use(attempt, name)
            return False
        if mark_of(target):
            if name in in_use(data):
                raise Changed(f"{target} was changed since it was built ({trouble}), and a run uses it")
            target.rename(root / f"{name}.old.tmp")
        remove(root / f"{name}.old.tmp")
        remove(target)
        _build_at(target if is_fixed else root / f"{name}.tmp", target, lambda folder: build(folder, descriptor))
        _note_use(attempt, name)
    return True


def _build_at(building: Path, target: Path, build: Callable[[Path], dict[str, object]]) -> None:
    """Build an environment, which has its mark from then on, and rename it; nothing is left where that fails."""
    remove(building)
    try:
        mark = build(building)
        write_whole(building / MARK_FILE, json.dumps(mark | {"distributions": _distributions(building)}))
        building.rename(target)  # to itself where it cannot be renamed
    except BaseException:
        remove(building)
        raise


class Changed(Exception):
    """An environment in use is no longer what was built; the message says what has changed, without its end."""


def mark_of(target: Path) -> dict[str, object]:
    """Return what the mark of an environment says; empty without one."""
    return read_object(target / MARK_FILE)


def damaged(target: Path) -> str:
    """Return what an environment lacks of what was installed, in a few words; empty for a complete one."""
    mark = mark_of(target)
    if not mark:
        return "it is incomplete"
    distributions = _distributions(target)
    if other := set(distributions) ^ set(mark.get("distributions", ())):  # type: ignore[call-overload]
        return f"{min(other).removesuffix('.dist-info')} was {'added' if min(other) in distributions else 'removed'}"
    return next((f"{path} is damaged" for path in _damaged(target)), "")


def remove(folder: Path) -> None:
    """Delete a folder, whatever it holds; nothing where it does not exist."""
    shutil.rmtree(folder, ignore_errors=True)


def in_use(data: Path) -> set[str]:
    """Return the names of the environments of the attempts on this node that are not settled."""
    files = (data / "runs").glob(f"*/attempts/*/*/{USED_FILE}")
    return {
        name for path in files if not is_settled(path.parent.parent) for name in read_object(path).get("folders", ())
    }


def _note_use(attempt: Path, name: str) -> None:
    names = read_object(attempt / USED_FILE).get("folders", [])
    write_whole(attempt / USED_FILE, json.dumps({"folders": [*names, name]}))


def make_room(root: Path, data: Path) -> None:
    """Delete the least recently used environments, but those in use, while space is short."""
    with suppress(OSError):
        for leftover in root.glob("*.tmp"):  # of builds that were killed
            _remove_unlocked(root, leftover, data)
        for folder in sorted(environments(root), key=lambda path: path.stat().st_mtime):
            if not is_short(root):
                break
            _remove_unlocked(root, folder, data)


def tidy(data: Path) -> None:
    """Delete environments and staged data that no attempt of this node uses, while space is short."""
    places = [folder for folder in (own_disk(data), own_disk(data, STAGED)) if folder.is_dir()]
    if any(map(is_short, places)):
        for folder in places:
            make_room(folder, data)


def is_short(root: Path) -> bool:
    """Whether the disk has less free space than runs need."""
    usage = shutil.disk_usage(root)
    return usage.free < min(SHORT_BYTES, int(usage.total * SHORT_SHARE))


def environments(root: Path) -> list[Path]:
    """Return the folders of complete environments."""
    return [path for path in root.glob("*") if path.is_dir() and (path / MARK_FILE).exists() and "." not in path.name]


def _remove_unlocked(root: Path, folder: Path, data: Path) -> None:
    """Delete an environment unless an attempt uses it or is about to."""
    name = folder.name.partition(".")[0]
    with (root / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if folder.name in in_use(data):
            return
        away = root / f"{name}.old.tmp"
        remove(away)
        if folder != away:
            folder.rename(away)
            remove(away)


def _packages(target: Path) -> Iterator[Path]:
    """Yield the folders in which an environment's distributions lie."""
    yield from target.glob("lib/python*/site-packages")
    if not (target / "bin" / "python").exists():
        yield target


def _distributions(target: Path) -> list[str]:
    return sorted(path.name for folder in _packages(target) for path in folder.glob("*.dist-info"))


def _damaged(target: Path) -> Iterator[str]:
    """Yield the installed files that are missing or of another size than their distribution's record says."""
    for packages in _packages(target):
        for record in packages.glob("*.dist-info/RECORD"):
            with record.open(newline="", errors="replace") as file:
                for path, _, size in (row for row in csv.reader(file) if len(row) == 3):
                    try:
                        length = os.stat(os.path.join(packages, path)).st_size  # noqa: PTH116, PTH118  (thousands)
                    except OSError:
                        yield path
                        continue
                    if size and length != int(size) and not path.startswith("../"):
                        yield path
