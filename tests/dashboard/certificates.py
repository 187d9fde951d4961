"""Certificates as people make them: self-signed, or by an authority of their own."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = "DNS:rankzero.test,DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True)
class Pair:
    """A certificate's file and its key's."""

    certificate: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `rankzero up` and `rankzero dashboard`."""
        return "--tls-cert", str(self.certificate), "--tls-key", str(self.key)


def self_signed(folder: Path, name: str = "server", names: str = NAMES) -> Pair:
    """Make a certificate that vouches for itself, with one command as people find it."""
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    _openssl("req", "-x509", *_new_key(pair), "-out", str(pair.certificate), "-addext", f"subjectAltName={names}")
    return pair


def signed(folder: Path, authority: Pair | None, name: str = "signed", names: str = NAMES, days: int = 2) -> Pair:
    """Make a certificate that an authority vouches for, or nobody else; with negative `days` it has ended."""
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    request, extensions = folder / f"{name}.request", folder / f"{name}.extensions"
    _openssl("req", *_new_key(pair), "-out", str(request))
    extensions.write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n")
    by = ["-signkey", pair.key] if authority is None else ["-CA", authority.certificate, "-CAkey", authority.key]
    more = ["-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", pair.certificate]
    _openssl("x509", "-req", "-in", str(request), *map(str, by + more[authority is None :]))
    return pair


def encrypted(pair: Pair) -> Pair:
    """Encrypt the key with a password."""
    key = pair.key.with_suffix(".encrypted")
    _openssl("pkey", "-in", str(pair.key), "-out", str(key), "-aes256", "-passout", "pass:secret")
    return Pair(pair.certificate, key)


def _new_key(pair: Pair) -> list[str]:
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(pair.key)]
    return [*kind, "-subj", f"/CN={pair.certificate.stem}"]


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True)
