"""A name that does not exist costs as much to judge as one that does."""

from __future__ import annotations

from typing import Literal

import pytest
from argon2 import PasswordHasher

from db.people import passwords


class RecordingHasher(PasswordHasher):
    """Records the hashes that passwords are compared with."""

    def __init__(self) -> None:
        super().__init__()
        self.compared: list[str] = []

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
        self.compared.append(str(hash))
        return super().verify(hash, password)


def test_a_password_without_a_hash_is_compared_with_one_of_the_same_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    hasher = RecordingHasher()
    monkeypatch.setattr(passwords, "_hasher", hasher)
    assert not passwords.is_right("correct horse", None)
    assert passwords.is_right("correct horse", passwords.hashed("correct horse"))
    nobodys, anas = (compared.split("$")[:4] for compared in hasher.compared)
    assert nobodys == anas and nobodys[1] == "argon2id"
