"""Data that a node brings once before a run starts: from a server, a bucket, a path, checked and shared."""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from pydantic import ValidationError

from domain.assignments import Assignment
from domain.clock import SYSTEM_CLOCK, Clock
from domain.environments.sources import source_of
from domain.masking.masking import masked_spec, unmasked_spec
from domain.messages import Reason
from domain.spec import RunSpec
from tests.s3_server import Bucket
from tests.virtual_time import VirtualTime
from worker.environments import folders
from worker.launch.preparation import CannotStart, LocalNode
from worker.session.client import TaskRef
from worker.staging.data_source import PIECE_BYTES
from worker.staging.ssh import refusal
from worker.staging.staging import DataStager


class Locks:
    """The server's first word on what a name means."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}

    def keep_lock(self, task: TaskRef, key: str, text: str) -> str:
        return self.words.setdefault(key, text)


class Staging:
    """A node that brings data for attempts."""

    def __init__(self, folder: Path, locks: Locks | None = None) -> None:
        self.folder, self.locks = folder, locks or Locks()
        self.told: list[str] = []
        self.clock: Clock = SYSTEM_CLOCK

    def bring(self, attempt: str = "1", nodes: int = 1, **stage: str) -> dict[str, Path]:
        """Where the data lies. Raises CannotStart."""
        spec = RunSpec.model_validate({"target": "/t.py", "stage": stage, "nodes": nodes})
        assignment = Assignment(
            run_id="abcdefghij", attempt=1, fence=1, node_rank=0, action="run", spec=spec, devices=["cpu:0"],
            device_kind="cpu",
        )  # fmt: skip
        node = LocalNode("gpu-2", self.folder, sys.executable)
        stager = DataStager(
            self.attempt(attempt),
            node,
            self.locks,
            lambda: False,
            self.told.append,
            self.clock,  # type: ignore[arg-type]
        )
        return {name: Path(path) for name, path in stager.with_data(assignment).spec.links.items()}

    def attempt(self, name: str) -> Path:
        return self.folder / "runs" / "abcdefghij" / "attempts" / name / "node0"

    def note(self, attempt: str = "1") -> str:
        return str(json.loads((self.attempt(attempt) / "worker" / "data.json").read_text())["note"])

    @property
    def staged(self) -> list[Path]:
        return [path for path in (self.folder / "staged").iterdir() if path.is_dir()]


@pytest.fixture
def node(tmp_path: Path) -> Staging:
    return Staging(tmp_path / "node")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a" * 1000)
    (folder / "sub" / "b.txt").write_text("b")
    return folder


@pytest.fixture
def server(files: Path) -> Iterator[str]:
    with tarfile.open(files / "set.tar.gz", "w:gz") as tar:
        for name, text in (("train/1.txt", "one"), ("train/2.txt", "two")):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    handler = partial(_Quiet, directory=str(files))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_an_archive_is_fetched_once_unpacked_and_shared(node: Staging, server: str):
    first = node.bring(data=f"{server}/set.tar.gz")["data"]
    assert sorted(path.read_text() for path in first.glob("train/*.txt")) == ["one", "two"]
    noted = re.fullmatch(r"data: 2 files, 6 B, (SHA-256 [0-9a-f]{16})", node.note())
    assert noted is not None
    again = node.bring("2", other=f"{server}/set.tar.gz")["other"]
    assert again == first
    assert node.note("2") == f"other: 2 files, 6 B, {noted[1]}, here already"
    assert node.bring("2", other=f"{server}/set.tar.gz")["other"] == first
    assert len(node.staged) == 1


def test_a_file_has_the_digest_that_its_address_names(node: Staging, server: str, files: Path):
    digest = hashlib.sha256((files / "a.txt").read_bytes()).hexdigest()
    assert node.bring(a=f"{server}/a.txt#sha256={digest}")["a"].read_text() == "a" * 1000
    with pytest.raises(CannotStart) as refused:
        node.bring("2", a=f"{server}/a.txt#sha256={'0' * 64}")
    assert refused.value.reason == Reason.ENVIRONMENT
    assert str(refused.value) == (
        f"The data 'a' (from {server}/a.txt) could not be brought to node gpu-2: "
        f"its SHA-256 is {digest}, not {'0' * 64}."
    )
    assert len(node.staged) == 1


def test_a_path_is_copied_and_a_new_version_is_brought_beside_the_old(node: Staging, files: Path):
    first = node.bring(d=str(files))["d"]
    assert (first / "sub" / "b.txt").read_text() == "b"
    (files / "sub" / "b.txt").write_text("changed")
    second = node.bring("2", d=str(files))["d"]
    assert (second / "sub" / "b.txt").read_text() == "changed"
    assert (first / "sub" / "b.txt").read_text() == "b"


def test_an_archive_of_the_node_is_unpacked_as_one_of_a_server(node: Staging, files: Path):
    with zipfile.ZipFile(files / "set.zip", "w") as packed:
        packed.writestr("train/1.txt", "one")
        packed.writestr("../out.txt", "kept inside")
    brought = node.bring(data=str(files / "set.zip"))["data"]
    assert sorted(str(path.relative_to(brought)) for path in brought.rglob("*.txt")) == ["out.txt", "train/1.txt"]
    (files / "bad.tar").write_bytes(b"no archive")
    with pytest.raises(CannotStart, match="the archive cannot be unpacked"):
        node.bring("2", data=str(files / "bad.tar"))
    with tarfile.open(files / "damaged.tgz", "w:gz") as tar:
        tar.add(Path(__file__), "train.py")
    packed = bytearray((files / "damaged.tgz").read_bytes())
    packed[len(packed) // 2 :] = bytes(len(packed) - len(packed) // 2)
    (files / "damaged.tgz").write_bytes(packed)
    with pytest.raises(CannotStart, match="the archive cannot be unpacked"):
        node.bring("3", data=str(files / "damaged.tgz"))


@pytest.mark.parametrize("name", ["files.json", "rankzero.json"])
def test_data_may_be_called_as_files_of_ours(node: Staging, files: Path, name: str):
    (files / name).write_text("theirs")
    assert node.bring(data=str(files / name))["data"].read_text() == "theirs"
    assert node.bring("2", data=str(files / name))["data"].read_text() == "theirs"
    assert node.note("2").endswith("here already")


def test_a_source_that_ends_above_itself_stays_in_its_folder(node: Staging, files: Path):
    brought = node.bring(data=f"{files}/sub/..")["data"]
    assert (brought / "a.txt").read_text() == "a" * 1000
    assert brought.parents[2] == node.folder / "staged"


def test_what_an_attempt_has_got_stays_while_it_brings_more(
    node: Staging, files: Path, monkeypatch: pytest.MonkeyPatch
):
    node.bring("1", old=str(files / "sub" / "b.txt"))
    (node.attempt("1") / "worker" / "reported.json").write_text('{"state": "succeeded"}')
    monkeypatch.setattr(folders, "is_short", lambda *_: True)
    brought = node.bring("2", a=str(files / "a.txt"), d=str(files))
    assert (brought["a"].read_text(), brought["d"].is_dir()) == ("a" * 1000, True)
    assert len(node.staged) == 2


def test_a_download_that_breaks_off_goes_on_with_the_same_file_alone(node: Staging, monkeypatch: pytest.MonkeyPatch):
    size, half = 3 * PIECE_BYTES, 3 * PIECE_BYTES // 2
    versions = [("a", size), ("a", half), ("b", half), ("b", size)]
    """What lies there at each request, and how much of it is sent."""
    ranges: list[str | None] = []

    class Breaking(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            letter, sent = versions.pop(0)
            text, etag, wanted = letter * size, f'"{letter}"', self.headers.get("Range")
            ranges.append(wanted)
            is_rest = wanted is not None and self.headers.get("If-Range") in (None, etag)
            rest = text[int(wanted.removeprefix("bytes=").rstrip("-")) :] if is_rest and wanted else text
            self.send_response(206 if is_rest else 200)
            self.send_header("ETag", etag)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest[:sent].encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    node.clock = VirtualTime()
    with ThreadingHTTPServer(("127.0.0.1", 0), Breaking) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        brought = node.bring(data=f"http://127.0.0.1:{http.server_port}/f.txt")["data"]
        http.shutdown()
    assert (brought.stat().st_size, set(brought.read_text())) == (size, {"b"})
    assert ranges == [None, None, f"bytes={PIECE_BYTES}-", f"bytes={PIECE_BYTES}-"]


def test_folders_behind_links_are_part_of_the_data(node: Staging, files: Path, tmp_path: Path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "c.txt").write_text("c")
    (files / "sub" / "far").symlink_to(tmp_path / "far")
    (files / "sub" / "round").symlink_to(files)
    brought = node.bring(data=str(files))["data"]
    assert sorted(str(path.relative_to(brought)) for path in brought.rglob("*.txt")) == [
        "a.txt", "sub/b.txt", "sub/far/c.txt",
    ]  # fmt: skip


def test_an_address_that_says_nothing_of_its_version_is_brought_each_time(node: Staging):
    said = [b"one", b"one", b"two", b"two"]

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said.pop(0))

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{http.server_port}/f.txt"
        texts = [node.bring(attempt, data=address)["data"].read_text() for attempt in ("1", "2")]
        http.shutdown()
    assert texts == ["one", "two"]


def test_what_was_damaged_is_brought_again_unless_a_run_uses_it(node: Staging, files: Path):
    first = node.bring(d=str(files))["d"]
    (first / "a.txt").write_text("")
    with pytest.raises(CannotStart, match=r"a\.txt was changed\), and a run uses it"):
        node.bring("2", d=str(files))
    (node.attempt("1") / "worker" / "reported.json").write_text('{"state": "succeeded"}')
    assert (node.bring("3", d=str(files))["d"] / "a.txt").read_text() == "a" * 1000


@pytest.mark.parametrize(
    ("path", "cause"),
    [("/nothing/there", "/nothing/there does not exist"), ("{server}/none", "the server answered 404")],
)
def test_a_source_that_is_not_there_is_named(node: Staging, server: str, path: str, cause: str):
    with pytest.raises(CannotStart) as refused:
        node.bring(d=path.format(server=server))
    assert "could not be brought to node gpu-2: " in str(refused.value)
    assert cause in str(refused.value)
    assert node.staged == []
    is_path = path.startswith("/")
    assert ("looked for on each node: copy it there, or stage HOST:PATH" in str(refused.value.next_step)) == is_path


@pytest.mark.parametrize(
    ("printed", "cause", "step"),
    [
        ("Host key verification failed.", "does not know the host key of gate", "`ssh me@gate` once to accept it."),
        ("me@gate: Permission denied (publickey).", "it has no ssh key that is allowed there", "`ssh-copy-id me@gate`"),
        ("@ REMOTE HOST IDENTIFICATION HAS CHANGED! @", "the host key of gate is not", "`ssh-keygen -R gate`"),
    ],
)
def test_what_the_nodes_ssh_lacks_is_said(
    node: Staging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, cause: str, step: str
):
    (tmp_path / "bin").mkdir()
    rsync = tmp_path / "bin" / "rsync"
    rsync.write_text(f'#!/bin/sh\necho "{printed}" >&2\nexit 255\n')
    rsync.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(CannotStart) as refused:
        node.bring(d="me@gate:/data")
    assert str(refused.value).startswith("The data 'd' (from me@gate:/data) could not be brought to node gpu-2: ")
    assert cause in str(refused.value)
    assert step in str(refused.value.next_step)
    assert "n gpu-2, as " in str(refused.value.next_step)


def test_a_file_that_rsync_may_not_read_is_no_trouble_of_ssh():
    assert refusal("rsync: send_files failed to open: Permission denied (13)", "gate:/data", "gpu-2") is None


@pytest.mark.long
def test_a_bucket_gives_what_lies_below_a_name(node: Staging, bucket: Bucket):
    for key in ("set/a.txt", "set/sub/b.txt", "settled.txt"):
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=key.encode())
    folder = node.bring(d=f"s3://{bucket.name}/set")["d"]
    assert {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")} == {
        "a.txt": "set/a.txt", "sub/b.txt": "set/sub/b.txt",
    }  # fmt: skip
    assert node.bring("2", d=f"s3://{bucket.name}/settled.txt")["d"].read_text() == "settled.txt"
    with pytest.raises(CannotStart, match="there is nothing at this address"):
        node.bring("3", d=f"s3://{bucket.name}/none")


@pytest.mark.long
def test_a_folder_of_another_host_comes_by_rsync(
    node: Staging, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By the real rsync; its ssh is a program that runs the far side here."""
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != gate ]; do shift; done; shift; exec sh -c "$*"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    folder = node.bring(d=f"gate:{files}")["d"]
    assert (folder / "sub" / "b.txt").read_text() == "b"
    assert node.bring("2", d=f"gate:{files}/a.txt")["d"].read_text() == "a" * 1000
    with pytest.raises(CannotStart, match="could not be brought to node gpu-2: "):
        node.bring("3", d=f"gate:{files}/none")
    with pytest.raises(CannotStart, match="it names 2 files: stage the folder that holds them"):
        node.bring("4", d=f"gate:{files}/*")


def test_nodes_that_got_different_data_do_not_train_together(tmp_path: Path, files: Path):
    locks = Locks()
    Staging(tmp_path / "a", locks).bring(nodes=2, d=str(files))
    (files / "a.txt").write_text("changed")
    with pytest.raises(CannotStart, match="another node of the run got different data"):
        Staging(tmp_path / "b", locks).bring(nodes=2, d=str(files))


def test_sources_are_addresses_paths_or_hosts():
    kinds = [source_of(text).kind for text in ("https://h/a.zip", "s3://b/k", "/data", "me@h.lan:data/x", "h:/data")]
    assert kinds == ["http", "s3", "path", "ssh", "ssh"]
    assert source_of("https://h/a.tar.gz?sig=1").is_archive
    for text in ("data", "ftp://h/x", "/data#x", "https://h/a#md5=1", "", "-e:x"):
        with pytest.raises(ValueError, match=r"must be|fragment"):
            source_of(text)


def test_secrets_of_a_source_are_masked_and_come_back():
    stage = {"a": "https://me:hunter2@h/x?X-Amz-Signature=abc&n=1"}
    spec = RunSpec(target="/t.py", stage=stage)
    masked = masked_spec(spec)
    assert "hunter2" not in masked.stage["a"]
    assert "abc" not in masked.stage["a"]
    assert unmasked_spec(masked, spec).stage == stage
    with pytest.raises(ValidationError, match="stage and links both name a"):
        RunSpec(target="/t.py", stage=stage, links={"a": "/b"})
