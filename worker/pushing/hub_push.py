"""Push files to a repository of the Hugging Face Hub: large ones first, each once, then one commit of all."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import httpx2

from domain.checkpoint_use.model_card import CARD_NAME
from domain.checkpoint_use.push_target import PushTarget
from domain.text.formats import as_list
from worker.pushing.push_report import Cut, PushFailed, PushRefused, PushReport
from worker.pushing.pushed_files import PushedFile

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, HfApi


class HubPush:
    """A model repository, opened with a person's own token, never with the node's."""

    def __init__(self, target: PushTarget, secrets: Mapping[str, str], report: PushReport) -> None:
        self._target, self._report = target, report
        self._repository = f"{target.place}/{target.path}"
        self._api = _connected(secrets["HF_TOKEN"])
        self._names: set[str] = set()

    def open(self, is_private: bool) -> list[str]:
        """Create the repository if there is none, and return what to note. Raises PushRefused, Cut."""
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._errors_in_words():
            try:
                info = self._api.model_info(self._repository)
            except RepositoryNotFoundError:  # or one that the token may not see, which the next line then says
                self._api.create_repo(self._repository, private=is_private, exist_ok=True)
                info = self._api.model_info(self._repository)
        self._names = {file.rfilename for file in info.siblings or ()}
        if is_private and not info.private:
            raise PushRefused(f"{self._target} is public: push to another repository, or with --public.")
        is_still_private = info.private and not is_private
        return [f"{self._target} is private and stays so; its settings make it public."] if is_still_private else []

    def card(self) -> str | None:
        """Return the model card that is there. Raises PushRefused, Cut."""
        if CARD_NAME not in self._names:
            return None
        with self._errors_in_words(), tempfile.TemporaryDirectory() as folder:
            path = self._api.hf_hub_download(self._repository, CARD_NAME, cache_dir=folder)
            return Path(path).read_text(errors="replace")

    def send(self, files: list[PushedFile], message: str) -> dict[str, Any]:
        """Send what is missing in one commit, and check all of it. Raises PushRefused, Cut, PushFailed, OSError."""
        from huggingface_hub import CommitOperationDelete

        done_bytes = 0
        with self._errors_in_words(), ExitStack() as opened:
            watched = [self._watched(file, opened) for file in files]
            for file, operation in zip(files, watched, strict=True):
                self._send(file, operation, done_bytes)
                done_bytes += file.size_bytes
                self._report.at(done_bytes)
            old = stale_weights(self._names, [file.name for file in files])
            self._report.doing("commits")
            removed = [CommitOperationDelete(name) for name in old]
            commit = self._api.create_commit(self._repository, [*watched, *removed], commit_message=message)
        self._check(files, commit.oid)
        notes = [f"Weights of an earlier push were removed from the branch: {as_list(old, 4)}."] if old else []
        return {"url": f"{self._api.endpoint}/{self._repository}", "revision": commit.oid, "notes": notes}

    def _watched(self, file: PushedFile, opened: ExitStack) -> CommitOperationAdd:
        """Open a file; return the operation that adds it, with its SHA-256."""
        from huggingface_hub import CommitOperationAdd

        self._report.doing(f"reads {file.name}")
        if isinstance(file.content, bytes):
            return CommitOperationAdd(file.name, file.content)
        return CommitOperationAdd(file.name, opened.enter_context(WatchedFile(file.content)))

    def _send(self, file: PushedFile, operation: CommitOperationAdd, done_bytes: int) -> None:
        """Send a large file, if the hub does not have these bytes; a small one goes with the commit."""
        self._report.doing(f"sends {file.name}")
        content = operation.path_or_fileobj
        if isinstance(content, WatchedFile):
            content.moved = lambda piece_bytes, position: self._moved(piece_bytes, done_bytes + position)
        self._api.preupload_lfs_files(self._repository, [operation], num_threads=1, free_memory=False)
        if isinstance(content, WatchedFile):
            content.moved = None  # what is read later is no longer sent

    def _moved(self, piece_bytes: int, done_bytes: int) -> None:
        self._report.sent_bytes += piece_bytes
        self._report.at(done_bytes)

    def _check(self, files: list[PushedFile], revision: str) -> None:
        """Compare size and sum of all that the commit has. Raises PushFailed, PushRefused, Cut."""
        self._report.doing("checks what arrived")
        there: dict[str, Any] = {}
        for names in _in_tens([file.name for file in files]):
            with self._errors_in_words():
                for entry in self._api.get_paths_info(self._repository, names, revision=revision):
                    there[entry.path] = entry
        for file in files:
            arrived = there.get(file.name)
            if arrived is None or getattr(arrived, "size", None) != file.size_bytes or not _has_sum(arrived, file):
                raise PushFailed(f"{self._target}: {file.name} differs from what was sent; push again to send it anew.")

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        """Convert the library's errors to PushRefused and Cut."""
        try:
            yield
        except (PushRefused, Cut):
            raise
        except Exception as error:
            cause: BaseException | None = error  # the library wraps some errors into others
            while cause is not None:
                if (known := _in_words(self._target, cause)) is not None:
                    raise known from error
                cause = cause.__cause__
            raise


class WatchedFile(io.BufferedReader):
    """A file that tells how far it was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.moved: Callable[[int, int], object] | None = None
        """Called with the bytes that a read returned, and with the position after it."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as any file does."""
        piece = super().read(size)
        if self.moved is not None:
            self.moved(len(piece), self.tell())
        return piece


PIECE_BYTES = 1024**2
TIMEOUT_S = 120.0
"""For a connection, and between any two pieces of a request or its answer."""
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")


def stale_weights(there: Iterable[str], sent: Iterable[str]) -> list[str]:
    """Return the weights of an earlier push: beside new ones, `from_pretrained` might load them instead."""
    new = set(sent)
    if not any(_WEIGHTS.fullmatch(name) for name in new):
        return []
    return sorted(name for name in there if _WEIGHTS.fullmatch(name) and name not in new)


def _connected(token: str) -> HfApi:
    """Return the library's client. Only the node's environment names the hub, as HF_ENDPOINT."""
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")  # LFS is what every hub speaks, and what a progress can be told of
    os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        import huggingface_hub as library
    except ImportError:
        raise PushRefused(
            "This node's worker has no huggingface_hub, which pushes to a hub: pip install 'rankzero[hub]' there."
        ) from None
    if library.is_offline_mode():
        raise PushRefused("This node's worker has HF_HUB_OFFLINE set, so nothing is pushed to a hub from it.")
    library.set_client_factory(_client)
    return library.HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token, library_name="rankzero")


def _client() -> httpx2.Client:
    """Return a client that gives up on a silent server; the library's own waits without end."""
    return httpx2.Client(follow_redirects=True, timeout=TIMEOUT_S)


def _has_sum(entry: Any, file: PushedFile) -> bool:
    """Whether an entry of the hub has a file's bytes: a large one by its SHA-256, a small one by git's SHA-1."""
    with file.open() as stream:
        if entry.lfs is not None:
            return bool(entry.lfs.sha256 == _sha256(stream))
        content = stream.read()
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return bool(entry.blob_id == git.hexdigest())


def _sha256(stream: BinaryIO) -> str:
    """Return the SHA-256 of what is left in a stream, with flat memory."""
    digest = hashlib.sha256()
    while piece := stream.read(PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _in_tens(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), 10):
        yield names[start : start + 10]


def _in_words(target: PushTarget, error: BaseException) -> Exception | None:
    """Return an error of the library as one of ours; None for one of another kind."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        return _refusal(target, error.response.status_code, error.server_message or "")
    return Cut(f"{target} cannot be reached ({type(error).__name__})") if isinstance(error, httpx2.HTTPError) else None


def _refusal(target: PushTarget, status: int, said: str) -> Exception:
    if status >= 500 or status == 429:
        return Cut(f"{target} answered {status}")
    if status in (401, 403, 404):
        return PushRefused(f"{target} denies access ({status}): check the token and that it may write there.")
    reason = f": {said.rstrip('.')}" if said else ""
    return PushRefused(f"{target} answered {status}{reason}.")
