"""Which account of this machine each person's trainings run under, as `--run-as` says."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RunAs:
    """The accounts of `--run-as`; none: trainings run under the worker's own."""

    default: str | None = None
    """For everybody without an account of their own."""
    people: Mapping[str, str] = field(default_factory=dict)
    """Person -> account."""

    @classmethod
    def parse(cls, entries: Iterable[str]) -> RunAs:
        """Read `ACCOUNT` and `PERSON=ACCOUNT`. Raises ValueError with a sentence."""
        default, people = None, dict[str, str]()
        for entry in entries:
            person, equals, account = entry.strip().rpartition("=")
            if not account or bool(equals) != bool(person):
                raise ValueError(f"--run-as {entry} is neither ACCOUNT nor PERSON=ACCOUNT.")
            if person in people or (not person and default is not None):
                raise ValueError(f"--run-as names two accounts for {person or 'everybody'}: remove one.")
            if person:
                people[person] = account
            else:
                default = account
        return cls(default, people)

    def __bool__(self) -> bool:
        return bool(self.accounts)

    @property
    def accounts(self) -> list[str]:
        """All accounts, each once, by name."""
        return sorted({*self.people.values(), *([self.default] if self.default else [])})

    @property
    def entries(self) -> list[str]:
        """The values of `--run-as`."""
        return [
            *([self.default] if self.default else []),
            *(f"{person}={name}" for person, name in self.people.items()),
        ]

    def of(self, person: str) -> str | None:
        """The account for a person's trainings; None where there is none."""
        return self.people.get(person, self.default)


class NoAccount(Exception):
    """An account cannot be used; the message is one sentence."""


@dataclass(frozen=True)
class Account:
    """An account of this machine, never root's nor the worker's own."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str

    @classmethod
    def named(cls, name: str) -> Account:
        """Look an account up. Raises NoAccount."""
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise NoAccount(
                f"There is no account {name} on this machine: create it, or name another with --run-as."
            ) from None
        if entry.pw_uid in (0, os.getuid()):
            holder = "root's" if entry.pw_uid == 0 else "the worker's own"
            raise NoAccount(f"{name} is {holder} account, which isolates nothing: name another with --run-as.")
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell)

    @property
    def groups(self) -> list[int]:
        """All groups that the account belongs to."""
        return os.getgrouplist(self.name, self.gid)

    @property
    def variables(self) -> dict[str, str]:
        """The variables that name the account to programs."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}
