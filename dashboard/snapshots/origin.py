"""The origin of a snapshot's code, and the entries that were left out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from domain.masking.masking import masked_text

Text = Annotated[str, Field(max_length=4096)]


class LeftBehind(BaseModel):
    """An entry of the folder that is not in the snapshot."""

    model_config = ConfigDict(frozen=True)

    name: Text
    """Name relative to the folder; a folder's has a trailing slash."""
    size_bytes: int
    at_least: bool = False
    """Whether the size is a lower bound because counting stopped."""
    why: Literal["ignored", "outside", "unreadable"] = "ignored"


class Origin(BaseModel):
    """The origin stored with a snapshot."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["script", "folder", "git", "upload"]
    path: Text | None = None
    """Path of the script or folder, or name of the uploaded file."""
    host: Annotated[str, Field(max_length=255)] | None = None
    """Host name of the machine with the path."""
    url: Annotated[Text, AfterValidator(masked_text)] | None = None
    """The repository's address, without a password."""
    ref: Annotated[str, Field(max_length=250)] | None = None
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}$")] | None = None
    branch: Annotated[str, Field(max_length=250)] | None = None
    dirty: bool = False
    """Whether there were uncommitted changes."""
    left_out: Annotated[list[LeftBehind], Field(max_length=100)] = []
    notes: Annotated[list[Text], Field(max_length=20)] = []
    """Sentences shown at the launch."""

    @property
    def location(self) -> str:
        """The address, path or file name."""
        return self.url or self.path or self.kind

    @property
    def version(self) -> str | None:
        """Branch or ref and commit; None without a commit."""
        if self.commit is None:
            return None
        text = f"commit {self.commit[:SHORT_COMMIT]}"
        name = self.ref or self.branch
        text = f"{name}, {text}" if name and name != self.commit else text
        return f"{text} with uncommitted changes" if self.dirty else text


SHORT_COMMIT = 10
