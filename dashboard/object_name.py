"""The name of an object in a bucket, parsed from its URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class ObjectName:
    """An object's bucket and key."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse s3://BUCKET/KEY. Raises ValueError for any other URL."""
        scheme, _, path = url.partition("://")
        bucket, _, key = path.partition("/")
        if scheme != "s3" or not bucket:
            raise ValueError(f"must be s3://BUCKET or s3://BUCKET/PREFIX, got {url!r}")
        return cls(bucket, key.strip("/"))
