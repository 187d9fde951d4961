"""Which certificates a client of the dashboard trusts: the system's, or those in the file RANKZERO_CA_FILE names."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.network.certificate_file import is_of_dashboard

CA_FILE = "RANKZERO_CA_FILE"
NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name."""


class CannotTrust(Exception):
    """The file of certificates cannot be used; the message is one sentence."""


def tls_context(
    url: str, of_system: Callable[[], ssl.SSLContext], ca_file: Path | None = None
) -> ssl.SSLContext | bool:
    """How an HTTP client checks the server's certificate at this address; False for plain HTTP. Raises CannotTrust.

    Without `ca_file` that of the environment counts, else `of_system` (`httpx2.create_ssl_context`): the system's
    certificates, or SSL_CERT_FILE."""
    if not url.lower().startswith("https:"):
        return False  # certificates that nobody needs take 25 ms to read
    named = ca_file or os.environ.get(CA_FILE)
    return FileContext.of(Path(named).expanduser()) if named else of_system()


def trusted_certificates() -> str:
    """The content of the file that RANKZERO_CA_FILE names; empty: the system's count. Raises CannotTrust."""
    path = os.environ.get(CA_FILE)
    try:
        return Path(path).expanduser().read_text(errors="replace") if path else ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CannotTrust(f"{CA_FILE}: {path} cannot be read: {reason}.") from None


class FileContext(ssl.SSLContext):
    """Trusts the certificates in a file alone; where the file has changed, the next connection trusts the new ones."""

    _path: Path
    _version: tuple[int, int] | None

    @classmethod
    def of(cls, path: Path) -> FileContext:
        """Read the file. Raises CannotTrust."""
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context._path, context._version = path, _version(path)
        try:
            is_own = is_of_dashboard(path.read_text(errors="replace"))
            context.load_verify_locations(path)
        except ssl.SSLError:
            raise CannotTrust(f"{CA_FILE}: {path} contains no certificate; it must be a PEM file.") from None
        except OSError as error:
            raise CannotTrust(f"{CA_FILE}: {path} cannot be read: {error.strerror}.") from None
        # What the file holds is trusted, also where it is no authority's, or not as strict as Python 3.13 wants it.
        context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
        if is_own:
            context.check_hostname = False
            context.verify_flags |= NO_CHECK_TIME
        return context

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Begin TLS on a new connection."""
        version = _version(self._path)
        if version not in (None, self._version):
            with suppress(OSError):  # half written: what was trusted stays
                self.load_verify_locations(self._path)
                self._version = version
        return super().wrap_socket(*args, **options)


def _version(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def why_no_tls(error: BaseException | None, url: str) -> str | None:
    """Why TLS was not begun and what to do, as a sentence without a full stop; None for other errors."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if isinstance(error, ssl.SSLCertVerificationError):
        return _why_not_trusted(error, url)
    if error is not None and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return f"it does not speak TLS: use {url.replace('https:', 'http:', 1)}"
    return None


def _why_not_trusted(error: ssl.SSLCertVerificationError, url: str) -> str:
    reason = error.verify_message.rstrip(".")
    if "mismatch" in reason:
        return (
            f"its certificate is for other names ({reason}): use one of them, or set {CA_FILE} to a copy of the "
            "file certificate.pem in the dashboard's data directory"
        )
    if "expired" in reason or "not yet valid" in reason:
        return f"its certificate is not valid today ({reason}): renew it on the server, and check both clocks"
    return (
        f"its certificate is not trusted here ({reason}): set {CA_FILE} to the file of its authority, or to a copy of "
        "the file certificate.pem in the dashboard's data directory"
    )
