"""Passwords, hashed by argon2; a name without a password costs as much to judge as one with.

Each hash takes 64 MiB and both cores of a small machine for a moment: callers take turns to make one."""

from __future__ import annotations

from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

AT_ONCE = 2
MOST_WAITING = 16
"""Hashes made at the same time, and hashes that wait: the last of them is made within some seconds."""
_hasher = PasswordHasher()


def hashed(password: str) -> str:
    """The hash of a password, with its salt and parameters."""
    return _hasher.hash(_bytes(password))


def is_right(password: str, password_hash: str | None) -> bool:
    """Whether the hash is this password's; takes as long without a hash."""
    try:
        _hasher.verify(password_hash or _nobodys(), _bytes(password))
    except (VerificationError, InvalidHashError):
        return False
    return password_hash is not None


def is_outdated(password_hash: str) -> bool:
    """Whether the hash was made with other parameters than new ones are."""
    return _hasher.check_needs_rehash(password_hash)


@cache
def _nobodys() -> str:
    return _hasher.hash(b"nobody's password")


def _bytes(password: str) -> bytes:
    return password.encode(errors="replace")
