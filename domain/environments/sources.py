"""Where the data of a run comes from: an address, a bucket, a path of the node, or a folder behind ssh. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

Kind = Literal["http", "s3", "path", "ssh"]
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
OTHERWISE = "HOST:PATH, an http or s3 address, or a folder that all nodes share"
"""What can be staged instead of a path that the nodes do not have."""
_SSH = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9][\w.-]*:[^:\s][^\n]*")
_DIGEST = re.compile(r"sha256=([0-9a-f]{64})")


@dataclass(frozen=True)
class Source:
    """One source of data."""

    kind: Kind
    address: str
    """Without its fragment."""
    sha256: str | None = None
    """The digest that the downloaded file must have, from the fragment `#sha256=…`."""

    @property
    def file_name(self) -> str:
        """The last part of the address: an archive is unpacked by its ending."""
        path = urlsplit(self.address).path if self.kind in ("http", "s3") else self.address
        name = path.rstrip("/").rpartition("/")[2]
        return "data" if name in ("", ".", "..") else name

    @property
    def is_archive(self) -> bool:
        """Whether a file is unpacked once it is here."""
        return self.file_name.endswith(ARCHIVES)


def source_of(text: str) -> Source:
    """Return the source that a text names. Raises ValueError."""
    address, _, fragment = text.partition("#")
    digest = _DIGEST.fullmatch(fragment)
    if fragment and (digest is None or not address.startswith(("http://", "https://"))):
        raise ValueError("only an address of http or https has a fragment: #sha256=, then 64 hexadecimal digits")
    if address.startswith(("http://", "https://")) and urlsplit(address).hostname:
        return Source("http", address, digest[1] if digest else None)
    if address.startswith("s3://") and urlsplit(address).hostname:
        return Source("s3", address)
    if address.startswith("/"):
        return Source("path", address)
    if "://" not in address and _SSH.fullmatch(address):
        return Source("ssh", address)
    raise ValueError(f"{address[:100]!r} must be an address (http, https, s3), an absolute path, or HOST:PATH for ssh")
