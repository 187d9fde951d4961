"""The place that a checkpoint is pushed to, and the secrets that it needs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from domain.requests.errors import InvalidRequest
from domain.spec import check_variable

Kind = Literal["hf", "s3"]


@dataclass(frozen=True)
class PushTarget:
    """A repository of the Hugging Face Hub, or a folder of a bucket; never an address: that is its node's setting."""

    kind: Kind
    place: str
    """The organization or person, or the bucket."""
    path: str
    """The repository's name; the prefix in the bucket, which may be empty."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse hf:ORG/NAME or s3://BUCKET/PREFIX. Raises InvalidRequest for any other text."""
        if text.startswith("hf:"):
            return cls._of_hub(text.removeprefix("hf:"), text)
        if text.startswith("s3://"):
            return cls._of_bucket(text.removeprefix("s3://"), text)
        raise InvalidRequest("target", f"target: must be {FORMS}, got {text!r}.")

    @classmethod
    def _of_hub(cls, name: str, text: str) -> Self:
        owner, _, repository = name.partition("/")
        if not (_is_hub_name(owner) and _is_hub_name(repository)) or len(name) > LONGEST_HUB_NAME:
            raise InvalidRequest(
                "target",
                f"target: must be hf:ORG/NAME, both of letters, digits, '-', '_' and '.', got {text!r}.",
            )
        return cls("hf", owner, repository)

    @classmethod
    def _of_bucket(cls, name: str, text: str) -> Self:
        bucket, _, prefix = name.partition("/")
        prefix = prefix.strip("/")
        if not _BUCKET.fullmatch(bucket) or not _is_prefix(prefix):
            raise InvalidRequest(
                "target", f"target: must be s3://BUCKET/PREFIX with names that a bucket takes, got {text!r}."
            )
        return cls("s3", bucket, prefix)

    def __str__(self) -> str:
        if self.kind == "hf":
            return f"hf:{self.place}/{self.path}"
        return f"s3://{self.place}/{self.path}" if self.path else f"s3://{self.place}"


FORMS = "hf:ORG/NAME or s3://BUCKET/PREFIX"
LONGEST_HUB_NAME = 96
"""Characters of ORG/NAME on the Hugging Face Hub."""
LONGEST_PREFIX = 512
_HUB_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def _is_hub_name(name: str) -> bool:
    has_wrong_pair = "--" in name or ".." in name
    return _HUB_NAME.fullmatch(name) is not None and not has_wrong_pair and not name.endswith(".git")


def _is_prefix(prefix: str) -> bool:
    parts = prefix.split("/") if prefix else []
    return len(prefix) <= LONGEST_PREFIX and prefix.isprintable() and not {"", ".", ".."} & set(parts)


# The credentials that a target needs, each a stored secret.

NEEDED: dict[Kind, tuple[str, ...]] = {"hf": ("HF_TOKEN",), "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
USED_IF_SET: dict[Kind, tuple[str, ...]] = {"hf": (), "s3": ("AWS_SESSION_TOKEN",)}


def secret_names(kind: Kind, given: Sequence[str]) -> dict[str, str]:
    """Return the name of the stored secret of each credential: its own, or what CREDENTIAL=SECRET says.

    A single name without a credential is that of HF_TOKEN. Raises InvalidRequest."""
    credentials = (*NEEDED[kind], *USED_IF_SET[kind])
    names = {credential: credential for credential in credentials}
    for text in given:
        credential, is_pair, secret = text.partition("=")
        if not is_pair and len(credentials) == 1:
            credential, secret = credentials[0], text
        if credential not in names or not _is_variable(secret):
            shown = " or ".join(f"{one}=SECRET" for one in credentials)
            raise InvalidRequest("secrets", f"secrets: must be the name of a stored secret as {shown}, got {text!r}.")
        names[credential] = secret
    return names


def _is_variable(name: str) -> bool:
    try:
        check_variable(name)
    except ValueError:
        return False
    return True
