"""Which process wrote an event file, and how the series of several writers in one folder are told apart.

The files of rank 0 have plain names, told by its process, not by a file's age; those of another rank begin with it
(`rank1:loss`). Of one rank, a file that begins when the last one has ended is a later life of the same series; two that
grow at once are two lines (`val:loss`, after what the script puts behind the file's name). Where a script makes a
folder for every epoch, whose names differ in numbers alone, and the steps go on, the series goes on in the next one.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath

from domain.clock import SYSTEM_CLOCK, Clock
from domain.text.json_values import parse_json
from worker.node import processes
from worker.node.regular_files import open_regular
from worker.node.state_files import read_object, write_whole
from worker.streams.events import HEADER, WALL, EventTail
from worker.streams.mirror import MirroredFile

AT_ONCE_S = 1.5
"""Seconds that the lives of two files overlap; a writer that was left open is flushed within less."""
SETTLED_S = 3.0
"""Age of a second file in a folder at which it is known whether the first still grows."""
TAIL_BYTES = 64 * 1024
LAST_STEPS_BYTES = 256 * 1024
"""The end of a file in which the last steps of its series are."""
HOLDERS_EVERY_S = 0.5
"""Seconds between two looks at which processes have files open whose names do not tell."""
_NUMBERS = re.compile(r"\d+")
_NAME = re.compile(r".*tfevents\.\d+\.(?P<host>.+)\.(?P<pid>\d+)\.\d+(?P<suffix>\..+)?")


@lru_cache(maxsize=16_384)  # asked of all files again and again
def process_of(path: str) -> int | None:
    """The id of the process that made an event file, which torch and tensorboard write into its name."""
    match = _NAME.fullmatch(PurePosixPath(path).name)
    return int(match["pid"]) if match else None


class RanksOfProcesses:
    """The rank of each process of an attempt on this node, from the probe's records or its environment."""

    def __init__(self, probe: Path) -> None:
        self._probe = probe
        self._known: dict[int, int] = {}

    def of(self, pid: int | None) -> int | None:
        """The rank of a process; None where nothing says it."""
        if pid is not None and pid not in self._known:
            rank = self._recorded(pid)
            if rank is None:
                rank = _number(processes.environment(pid).get("RANK"))
            if rank is None:
                return None
            self._known[pid] = rank
        return None if pid is None else self._known[pid]

    def _recorded(self, pid: int) -> int | None:
        """The rank in its last record: a process that joins a group by itself has none before."""
        with (
            suppress(OSError, ValueError, AttributeError),
            open_regular(self._probe / f"{pid}.jsonl") as records,
        ):
            records.seek(max(0, records.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = [line for line in records.read().split(b"\n")[:-1] if line.startswith(b"{")]
            return _number(parse_json(lines[-1]).get("rank")) if lines else None
        return None


class Writers:
    """The writers of one attempt's event files on this node; it knows them again after a restart of the worker."""

    def __init__(
        self,
        state_file: Path | None,
        rank_of: Callable[[int | None], int | None],
        first_rank: int | None,
        written: Callable[[MirroredFile], float] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        holders: Callable[[Collection[Path]], Mapping[Path, Collection[int]]] = lambda files: {},
    ) -> None:
        """`first_rank`: the one with plain names; None for the lowest that wrote any.

        `holders`: the processes that have files open, asked for those whose names do not tell their process;
        `written`: the exact wall time of a file's last event, in seconds; None: its modification time is close to it.
        """
        self._state_file, self._rank_of, self._first_rank = state_file, rank_of, first_rank
        self._written, self._clock, self._holders = written or _modified, clock, holders
        self._looked_for_holders_at = -math.inf
        self._looked_for = set[str]()
        """Files whose names do not tell their process, and for whose holders was looked at least once."""
        self._at_once_s = AT_ONCE_S if written is None else 0.0
        state = read_object(state_file) if state_file else {}
        self._ranks: dict[str, int] = dict(state.get("ranks", {}))
        self._owners: dict[str, str] = dict(state.get("owners", {}))
        """Folder, rank and tag -> the file whose series has the plain name."""
        self._apart: dict[str, str] = dict(state.get("apart", {}))
        """File and tag -> what the name begins with."""
        self._separate: dict[str, bool] = dict(state.get("separate", {}))
        """File -> whether its name begins with its folder, as decided by its first points."""
        self._processes: dict[str, int] = dict(state.get("processes", {}))
        """File whose name does not tell its process -> one that had it open."""
        self._origins: dict[str, str] = dict(state.get("origins", {}))
        """File -> the first of those that it goes on with, each in a folder of its own; itself if with none."""
        self._before: dict[str, str] = {}
        """File -> the one before it in a folder that differs in numbers alone."""
        self._files: dict[str, MirroredFile] = {}
        self._by_folder: dict[str, list[str]] = {}
        self._siblings_of: dict[tuple[str, int | None], list[str]] = {}
        """Folder and rank -> its files."""
        self._is_changed = False
        """Whether something was decided that is not written down."""
        self._created_at: dict[str, float] = {}

    def look(self, files: Iterable[MirroredFile]) -> None:
        """Note which files there are, and the ranks of their processes while these can be told."""
        before, self._files = self._files.keys(), {file.path: file for file in files}
        has_changed = before != self._files.keys()
        if has_changed:
            self._siblings_of.clear()
            self._by_folder.clear()
            for path in self._files:  # a run may have thousands, each in a folder of its own
                self._by_folder.setdefault(_folder(path), []).append(path)
        processes = {path: self._process(path) for path in self._files if path not in self._ranks}
        rank_of = {process: self._rank_of(process) for process in set(processes.values())}
        ranks = {path: rank for path, process in processes.items() if (rank := rank_of[process]) is not None}
        if ranks:
            self._ranks |= ranks
            self._siblings_of.clear()
            self._is_changed = True
        if ranks or has_changed:
            self._before = self._files_before()
        self._save()

    def is_rank_0s(self, path: str) -> bool:
        """Whether the file is of the rank with plain names, or of a process without a rank."""
        return self._ranks.get(path, self._first()) == self._first()

    def is_settled(self, path: str, now: float) -> bool:
        """Whether its writer is known, and whether it continues another file or grows next to it."""
        is_told = path in self._ranks or self._process(path) is not None
        is_alone = len(self._siblings(path)) == 1 and path not in self._before
        return (is_told and is_alone) or now - self._created(path) >= SETTLED_S

    def origin(self, path: str, first_steps: Mapping[str, int]) -> str:
        """Return the file whose folder names the series: the first of those that this one goes on with, or itself.

        `first_steps`: those of the file's series by tag, which decide it the first time."""
        if path not in self._origins:
            before = self._before.get(path)
            goes_on = before is not None and not self._grow_at_once(before, path) and self._goes_on(before, first_steps)
            self._origins[path] = self._origins.get(before, before) if before and goes_on else path
            self._is_changed = True
        return self._origins[path]

    def has_rank_0s_beside(self, path: str) -> bool:
        """Whether the folder has a file of the rank with plain names."""
        return any(map(self.is_rank_0s, self._by_folder.get(_folder(path), ())))

    def has_own_folder(self, path: str, is_beside: bool) -> bool:
        """Whether its folder tells the file apart; `is_beside`: it is not the main one now."""
        if self.is_rank_0s(path):
            return is_beside
        if path not in self._separate:
            self._separate[path] = is_beside
            self._is_changed = True
        return self._separate[path]

    def prefix(self, tag: str, path: str, *, has_own_folder: bool) -> str:
        """Return the prefix that tells the file's series of this tag from others that would have its name."""
        rank = "" if has_own_folder or self.is_rank_0s(path) else f"rank{self._ranks[path]}:"
        return f"{rank}{self._apart_from_siblings(tag, path)}"

    def _process(self, path: str) -> int | None:
        """The process that wrote a file, by its name or by who has it open."""
        if (named := process_of(path)) is not None or path in self._processes:
            return self._processes.get(path, named)
        if path not in self._looked_for or self._clock.now() - self._looked_for_holders_at >= HOLDERS_EVERY_S:
            self._look_for_holders()
        return self._processes.get(path)

    def _look_for_holders(self) -> None:
        self._looked_for_holders_at = self._clock.now()
        now = self._clock.wall()
        untold = {
            file.source: path
            for path, file in self._files.items()
            if path not in self._processes and process_of(path) is None
            if path not in self._looked_for or now - self._created(path) < SETTLED_S
        }
        self._looked_for.update(untold.values())
        for source, pids in self._holders(untold).items() if untold else ():
            # Children that were forked meanwhile have it open, too.
            ranked = [pid for pid in pids if self._rank_of(pid) is not None] or list(pids)
            self._processes[untold[source]] = min(ranked, key=lambda pid: (self._rank_of(pid) or 0, pid))
            self._is_changed = True

    def _files_before(self) -> dict[str, str]:
        """The file before each, of one process and in a folder whose name differs in numbers alone."""
        before, newest = dict[str, str](), dict[tuple[object, ...], str]()
        for path in self._files:  # in the order of their creation
            match = _NAME.fullmatch(PurePosixPath(path).name)
            process = self._processes.get(path, process_of(path)), self._ranks.get(path)
            key = _NUMBERS.sub("#", _folder(path)), process, match and match["suffix"]
            if key in newest and _folder(newest[key]) != _folder(path):
                before[path] = newest[key]
            newest[key] = path
        return before

    def _goes_on(self, before: str, first_steps: Mapping[str, int]) -> bool:
        """Whether all series that both files have stand at higher steps than the file before ended with."""
        last_steps = _last_steps(self._files[before])
        common = first_steps.keys() & last_steps.keys()
        return bool(common) and all(first_steps[tag] > last_steps[tag] for tag in common)

    def _first(self) -> int:
        lowest = min(self._ranks.values(), default=0)
        return lowest if self._first_rank is None else self._first_rank

    def _siblings(self, path: str) -> list[str]:
        """The files of the same rank in the same folder, the file itself among them."""
        key = folder, rank = _folder(path), self._ranks.get(path)
        if key not in self._siblings_of:
            self._siblings_of[key] = [
                other for other in self._by_folder.get(folder, ()) if self._ranks.get(other) == rank
            ]
        return self._siblings_of[key]

    def _created(self, path: str) -> float:
        if path not in self._created_at:
            created_at = _first_wall(self._files[path])
            if created_at is None:
                return self._clock.wall()
            self._created_at[path] = created_at
        return self._created_at[path]

    def _grow_at_once(self, one: str, other: str) -> bool:
        ended = min(self._written(self._files[one]), self._written(self._files[other]))
        return ended - max(self._created(one), self._created(other)) > self._at_once_s

    def _apart_from_siblings(self, tag: str, path: str) -> str:
        """Return "" for the file that has the series' own name, and for the next one after it has ended."""
        siblings = self._siblings(path)
        if len(siblings) == 1:
            return ""
        own, series = f"{path}\n{tag}", f"{PurePosixPath(path).parent}\n{self._ranks.get(path)}\n{tag}"
        owner = self._owners.get(series, path)
        if owner == path or own in self._apart:
            if series not in self._owners:
                self._owners[series], self._is_changed = path, True
            return self._apart.get(own, "")
        if owner in self._files and self._grow_at_once(owner, path):
            self._apart[own] = _suffix(path, siblings)
        elif owner not in self._files or self._created(path) >= self._created(owner):
            self._owners[series] = path
        self._is_changed = True
        return self._apart.get(own, "")

    def _save(self) -> None:
        """Write down what was decided since the last look: after a kill, the same is decided again."""
        if self._state_file is None or not self._is_changed:
            return
        self._is_changed = False
        state = {
            "ranks": self._ranks, "owners": self._owners, "apart": self._apart, "separate": self._separate,
            "processes": self._processes, "origins": self._origins,
        }  # fmt: skip
        with suppress(OSError):  # a full disk: decided again after a restart
            write_whole(self._state_file, json.dumps(state))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _last_steps(file: MirroredFile) -> dict[str, int]:
    """The highest steps at the end of a file, by tag."""
    steps = dict[str, int]()
    with suppress(OSError):
        tail = EventTail(file.source, max(0, file.source.stat().st_size - LAST_STEPS_BYTES))
        tail.final = True
        while (records := tail.read()).end > records.start:
            steps |= {tag: max(step for step, _, _ in points) for tag, points in records.series.items()}
    return steps


def _suffix(path: str, files: Iterable[str]) -> str:
    """Return the suffix that the script gave the file's name, else its number among those of the folder."""
    match = _NAME.fullmatch(PurePosixPath(path).name)
    if match and match["suffix"]:
        return f"{match['suffix'].lstrip('.')}:"
    return f"writer{sorted(files).index(path) + 1}:"


def _first_wall(file: MirroredFile) -> float | None:
    """The wall time of the file's first event, which is written when it is made; None while there is none."""
    with suppress(OSError), open_regular(file.source) as content:
        head = content.read(HEADER.size + 1 + WALL.size)
        if len(head) == HEADER.size + 1 + WALL.size and head[HEADER.size] == 0x09:
            return float(WALL.unpack_from(head, HEADER.size + 1)[0])
    return None


def _modified(file: MirroredFile) -> float:
    try:
        return file.source.stat().st_mtime
    except OSError:
        return 0.0


def _number(value: object) -> int | None:
    try:
        return int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None
