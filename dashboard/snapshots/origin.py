"""Where a snapshot's code comes from, and what of it stayed behind."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from domain.masking import masked_text

Text = Annotated[str, Field(max_length=4096)]
SHORT_COMMIT = 10


class LeftBehind(BaseModel):
    """Something of the folder that is not in the snapshot."""

    model_config = ConfigDict(frozen=True)

    name: Text
    """Relative to the folder; a folder's ends with a slash."""
    size_bytes: int
    at_least: bool = False
    """It is larger than that: counting stopped."""
    why: Literal["ignored", "outside", "unreadable"] = "ignored"


class Origin(BaseModel):
    """Facts kept with a snapshot."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["script", "folder", "git", "upload"]
    path: Text | None = None
    """Of the script or folder, or the name of the uploaded file."""
    host: Annotated[str, Field(max_length=255)] | None = None
    """The machine the path is on."""
    url: Annotated[Text, AfterValidator(masked_text)] | None = None
    """Without a password, whoever told it."""
    ref: Annotated[str, Field(max_length=250)] | None = None
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}$")] | None = None
    branch: Annotated[str, Field(max_length=250)] | None = None
    dirty: bool = False
    """There were changes that the commit does not have."""
    left_out: Annotated[list[LeftBehind], Field(max_length=100)] = []
    notes: Annotated[list[Text], Field(max_length=20)] = []
    """What whoever launches it is told."""

    @property
    def place(self) -> str:
        """The path, address or file name people know it by."""
        return self.url or self.path or self.kind

    @property
    def version(self) -> str | None:
        """Branch and commit, as far as there are any."""
        if self.commit is None:
            return None
        text = f"commit {self.commit[:SHORT_COMMIT]}"
        name = self.ref or self.branch
        text = f"{name}, {text}" if name and name != self.commit else text
        return f"{text} with uncommitted changes" if self.dirty else text
