"""Accounts of this machine and a Python for them, made once for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import other_accounts
from tests.other_accounts import OtherAccount


@pytest.fixture(scope="session")
def open_python() -> Iterator[Path]:
    """A Python that all accounts may execute."""
    with other_accounts.open_folder() as folder:
        yield other_accounts.make_python(folder / "python")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that all accounts may enter."""
    with other_accounts.open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def ana() -> Iterator[OtherAccount]:
    """The account of one person."""
    with other_accounts.account() as account:
        yield account


@pytest.fixture(scope="module")
def bob() -> Iterator[OtherAccount]:
    """The account of another."""
    with other_accounts.account() as account:
        yield account
