"""The key with which secrets are encrypted at rest: in a file beside the store, never in it or in its backups."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dashboard.security.keys.token_files import TokenUnusable, read_or_create
from domain.text.paths import problem_in_words

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12


class SecretsUnreadable(Exception):
    """A secret cannot be decrypted or stored; the message says why and what to do."""


class SecretKey:
    """The key in one file, made when the first secret is stored."""

    def __init__(self, path: Path, is_used: Callable[[], bool]) -> None:
        """`is_used` tells whether anything in the store is encrypted: then a missing key is a lost one."""
        self.path, self._is_used = path, is_used

    def encrypt(self, value: str, *place: object) -> bytes:
        """Return the value's ciphertext, which can be decrypted for the same place only. Raises SecretsUnreadable."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._cipher().encrypt(nonce, value.encode(errors="surrogatepass"), _bound(place))

    def decrypt(self, ciphertext: bytes, *place: object) -> str:
        """Return the value. Raises SecretsUnreadable where the key is lost, or is not the one it was encrypted with."""
        from cryptography.exceptions import InvalidTag

        nonce, encrypted = ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:]
        try:
            return self._cipher().decrypt(nonce, encrypted, _bound(place)).decode(errors="surrogatepass")
        except InvalidTag:
            raise SecretsUnreadable(
                f"The key in {self.path} is not the one with which secrets in this store were encrypted. Put the old "
                "file back, or set the secrets again: rankzero secret set NAME."
            ) from None

    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # not before there is a secret

        try:
            if not self.path.exists() and self._is_used():
                raise SecretsUnreadable(
                    f"The key of the secrets in this store is lost: there is no file {self._remedy}"
                )
            text = read_or_create(self.path)
        except TokenUnusable:
            raise SecretsUnreadable(f"The key of the secrets in this store is damaged in {self._remedy}") from None
        except OSError as error:
            raise SecretsUnreadable(f"The key of the secrets cannot be used: {problem_in_words(error)}") from error
        return AESGCM(hashlib.sha256(b"rankzero secrets " + text.encode()).digest())

    @property
    def _remedy(self) -> str:
        return (
            f"{self.path}. The key is not in the store or its backups: put a copy of the file back. If there is none, "
            f"make a new key (umask 077; openssl rand -hex 32 > {self.path}) and set the secrets again: "
            "rankzero secret set NAME."
        )


def _bound(place: tuple[object, ...]) -> bytes:
    """The place of a ciphertext, so that it is worth nothing in another row."""
    return json.dumps(place).encode()
