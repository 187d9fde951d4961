"""The file by which clients know a dashboard's own certificate: `certificate.pem` in its data directory. Pure."""

from __future__ import annotations

NAME = "certificate.pem"
_MARK = "# The certificate of one Rankzero dashboard"
HEAD = f"{_MARK}: clients with this file in RANKZERO_CA_FILE trust it alone, with any names and dates.\n"


def of_dashboard(certificate_pem: str) -> str:
    """The file's text for a certificate."""
    return HEAD + certificate_pem


def is_of_dashboard(text: str) -> bool:
    """Whether the text was made by `of_dashboard`, so that the certificate in it stands for itself."""
    return text.startswith(_MARK)
