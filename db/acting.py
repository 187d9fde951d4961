"""Who acts, and from where: the rights for which the store is read and written now, in this thread or task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from domain.people.rights import OWNER, PROGRAM, Rights

_RIGHTS: ContextVar[Rights] = ContextVar("rights")
_ADDRESS: ContextVar[str | None] = ContextVar("address", default=None)


def rights() -> Rights:
    """The rights of the actor; those of the program where nobody was named."""
    return _RIGHTS.get(PROGRAM)


def entered_rights() -> Rights:
    """The rights that were entered in this thread or task.

    Raises RuntimeError where none were, so that no person ever acts with the rights of the program."""
    try:
        return _RIGHTS.get()
    except LookupError:
        raise RuntimeError("Nobody's rights were entered in this thread: enter the person's first.") from None


def name() -> str:
    """The name of the actor; the program itself acts for the owner."""
    return rights().by or OWNER


def address() -> str | None:
    """The network address from which the actor sent the request; None where nobody sent one."""
    return _ADDRESS.get()


def enter(acting_rights: Rights, address: str | None = None) -> None:
    """Act with these rights, from this address, until the thread or task ends, or others are entered."""
    _RIGHTS.set(acting_rights)
    _ADDRESS.set(address)


@contextmanager
def acting(acting_rights: Rights) -> Iterator[None]:
    """Act with these rights in a block."""
    token = _RIGHTS.set(acting_rights)
    try:
        yield
    finally:
        _RIGHTS.reset(token)


@contextmanager
def requested_from(address: str | None) -> Iterator[None]:
    """Say for a block where its request came from."""
    token = _ADDRESS.set(address)
    try:
        yield
    finally:
        _ADDRESS.reset(token)


@contextmanager
def on_behalf(by: str | None, via: str) -> Iterator[None]:
    """Act by the program's own rules for a person: what a sweep, alert or policy of theirs decides."""
    with acting(replace(PROGRAM, by=by, via=via)):
        yield
