"""The certificate with which the dashboard speaks TLS, read again when its files change."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dashboard.private_files import write_private
from domain.clock import SYSTEM_CLOCK
from domain.network import certificate_file
from domain.text.formats import plural
from domain.text.paths import problem_in_words

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

WARNED_DAYS = 14


class CertificateUnusable(Exception):
    """A certificate or key cannot be used; the message is one sentence for the user."""


class ServerCertificate:
    """A certificate and its key; `context` is that of the server, and stays the same object."""

    def __init__(self, certificate: Path, key: Path | None = None) -> None:
        """`key` is needed unless the certificate's file has it, too. Raises CertificateUnusable."""
        self._certificate, self._key = certificate, key or certificate
        self._seen = self._versions()
        check_pair(certificate, self._key)
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        self._load(self.context)

    @property
    def own_pem(self) -> str:
        """The server's own certificate, without those of the authorities that follow it in the file."""
        return _own_pem(self._certificate)

    @property
    def end_warning(self) -> str | None:
        """A sentence where the certificate has ended, or ends within two weeks."""
        return end_warning(self._certificate)

    def read_again(self) -> bool:
        """Use the files from now on if they have changed; returns whether they have.

        Connections stay as they are. Raises CertificateUnusable, once for each change; the old pair stays in use."""
        versions = self._versions()
        if versions == self._seen:
            return False
        self._seen = versions
        check_pair(self._certificate, self._key)  # apart: half a new pair would spoil the context in use
        self._load(self.context)
        return True

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._certificate, self._key, _no_password)

    def _versions(self) -> list[tuple[int, ...]]:
        return [_version(path) for path in (self._certificate, self._key)]


def check_pair(certificate: Path, key: Path | None = None) -> None:
    """Raise CertificateUnusable unless the files can be read and belong together."""
    key = key or certificate
    _own_pem(certificate)
    if not re.search(r"-----BEGIN [A-Z ]*PRIVATE KEY-----", _text(key)):
        need = "name the key's own in RANKZERO_TLS_KEY." if key == certificate else "it must be a PEM file."
        raise CertificateUnusable(f"{key} contains no private key: {need}")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, _no_password)
    except _Encrypted:
        raise CertificateUnusable(
            f"{key} must not be encrypted: `openssl pkey -in {key} -out NEW` writes it without a password."
        ) from None
    except (ssl.SSLError, OSError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise CertificateUnusable(f"{key} is not the key of the certificate in {certificate}.") from None
        reason = str(getattr(error, "reason", None) or error).replace("_", " ").lower()
        raise CertificateUnusable(f"{certificate} and {key} cannot be used: {reason}.") from None


def publish(certificate: ServerCertificate, data: Path) -> None:
    """Write the certificate to where clients of this data directory find it. Raises OSError."""
    write_private(data / certificate_file.NAME, certificate_file.of_dashboard(certificate.own_pem))


def end_warning(certificate: Path) -> str | None:
    """A sentence where the first certificate in the file has ended, or ends within two weeks.

    Raises CertificateUnusable."""
    ends_at = _read(certificate).not_valid_after_utc
    days = (ends_at - datetime.fromtimestamp(SYSTEM_CLOCK.wall(), UTC)).days
    if days >= WARNED_DAYS:
        return None
    when = "has ended" if days < 0 else f"ends in {plural(days, 'day')}"
    return f"The certificate in {certificate} {when}, on {ends_at:%d %B %Y}: renew it."


def published_self_signed(data: Path) -> Path | None:
    """The file that `publish` has written, without any key, if its certificate has no authority but itself."""
    published = data / certificate_file.NAME
    try:
        own = _read(published)
    except (CertificateUnusable, ValueError):
        return None
    return published if own.issuer == own.subject else None


class _Encrypted(Exception):
    """OpenSSL asks for the password of a key; without an answer of ours it would ask on the terminal."""


def _no_password() -> str:
    raise _Encrypted


def _read(path: Path) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificate  # a dashboard without TLS needs nothing of it

    return load_pem_x509_certificate(_own_pem(path).encode())


def _own_pem(path: Path) -> str:
    match = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", _text(path), re.DOTALL)
    if match is None:
        raise CertificateUnusable(f"{path} contains no certificate: it must be a PEM file.")
    return match[0] + "\n"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise CertificateUnusable(f"{path} cannot be read: {problem_in_words(error)}.") from None


def _version(path: Path) -> tuple[int, ...]:
    """A value that changes when a file is replaced or rewritten; a link is followed."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
