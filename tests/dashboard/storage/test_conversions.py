"""Checkpoints in another form: written apart, served like the original, kept for a while, never unpickled."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cli import main
from dashboard.storage import conversions
from dashboard.storage.conversion import Conversion, is_folder
from db.checkpoints import checkpoint_queries
from tests.dashboard.running import FakeNode, Running
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.real

torch = pytest.importorskip("torch")


def saved(value: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


WRAPPED = {"model": {"module.w": torch.arange(6.0).reshape(2, 3), "module.b": torch.ones(2)}, "step": 7}


class Stored:
    """A checkpoint on the server."""

    def __init__(self, dashboard: Running, node: FakeNode, content: bytes, path: str = "work/last.pt") -> None:
        self.dashboard = dashboard
        self.run_id = dashboard.launch()
        self.task = node.task()
        self.id = node.store_checkpoint(self.task, content, path)

    def get_once(self, query: str, **headers: str) -> Any:
        return self.dashboard.http.get(f"/api/checkpoints/{self.id}/file?{query}", headers=headers)

    def get(self, query: str, **headers: str) -> Any:
        """The answer once the program has ended: to load torch takes it long on a busy machine."""
        limit_s = 2 * conversions.LEAST_S + 60
        return wait_for(
            lambda: (answer := self.get_once(query, **headers)).status_code != 503 and answer,
            "the program",
            limit_s,
        )

    @property
    def others(self) -> list[str]:
        """What lies there in other forms."""
        return sorted(path.name for path in self.dashboard.service.files.converted.iterdir())


@pytest.fixture
def wrapped(dashboard: Running, node: FakeNode) -> Stored:
    return Stored(dashboard, node, saved(WRAPPED), "work/checkpoints/step_10.pt")


@pytest.fixture
def tensors(dashboard: Running, node: FakeNode) -> Stored:
    """A safetensors file: the program converts it without loading torch, which takes seconds."""
    description = {"module.w": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}
    header = json.dumps(description).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(256)
    return Stored(dashboard, node, content, "work/checkpoints/step_10.safetensors")


@pytest.mark.long
def test_a_checkpoint_without_its_prefix_loads_into_the_plain_model(wrapped: Stored) -> None:
    answer = wrapped.get("prefix=strip")
    assert answer.status_code == 200
    loaded = torch.load(io.BytesIO(answer.content), weights_only=True)
    assert torch.equal(loaded["model"]["w"], WRAPPED["model"]["module.w"]) and loaded["step"] == 7
    assert list(loaded["model"]) == ["w", "b"]
    sha256 = hashlib.sha256(answer.content).hexdigest()
    assert answer.headers["x-checksum-sha256"] == sha256 and answer.headers["etag"] == f'"{sha256}"'
    assert answer.headers["content-disposition"] == 'attachment; filename="step_10.no-prefix.pt"'
    assert answer.headers["x-rankzero-note"] == "Names lost their prefix module."


@pytest.mark.long
def test_safetensors_say_what_is_in_them_and_what_is_not(wrapped: Stored) -> None:
    answer = wrapped.get("prefix=strip&format=safetensors")
    (size,) = struct.unpack_from("<Q", answer.content)
    assert json.loads(answer.content[8 : 8 + size])["w"]["shape"] == [2, 3]
    assert answer.headers["content-disposition"] == 'attachment; filename="step_10.no-prefix.safetensors"'
    assert answer.headers["x-rankzero-note"] == (
        "2 tensors of 'model' are in it, the names lost the prefix module. "
        "Left out, because safetensors holds only tensors: step."
    )


def test_it_is_written_once_and_served_in_parts(tensors: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tensors.get("prefix=strip")
    monkeypatch.setattr(tensors.dashboard.service.conversions, "_convert", None)  # a second time would fail
    head = tensors.dashboard.http.head(f"/api/checkpoints/{tensors.id}/file?prefix=strip")
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(whole.content)))
    task = tensors.get("prefix=strip", Range="bytes=100-199")
    assert (task.status_code, task.content) == (206, whole.content[100:200])
    assert tensors.get("prefix=strip", **{"If-None-Match": whole.headers["etag"]}).status_code == 304
    assert len(tensors.others) == 2


@pytest.mark.long
def test_without_a_prefix_the_original_is_served(dashboard: Running, node: FakeNode) -> None:
    content = saved({"w": torch.ones(3)})
    plain = Stored(dashboard, node, content)
    answer = plain.get("prefix=strip")
    assert answer.content == content
    assert answer.headers["x-rankzero-note"].startswith("No prefix was found")


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "query", "words"),
    [
        (b"no checkpoint at all", "prefix=strip", "torch's weights-only loader does not read it"),
        (saved([1, 2]), "format=safetensors", "It does not contain a dictionary"),
    ],
)
def test_unconvertible_checkpoint_gets_a_sentence(
    dashboard: Running, node: FakeNode, content: bytes, query: str, words: str
) -> None:
    stored = Stored(dashboard, node, content)
    for _ in range(2):  # the second time from what is remembered
        answer = stored.get(query)
        assert answer.status_code == 422
        assert words in answer.json()["detail"]["message"]


def test_wrong_options_name_their_field(wrapped: Stored) -> None:
    answer = wrapped.get("prefix=module.")
    assert (answer.status_code, answer.json()["detail"]["field"]) == (422, "prefix")
    assert wrapped.get("format=onnx").status_code == 422


def test_converted_copy_is_deleted_with_its_checkpoint(tensors: Stored, node: FakeNode, dashboard: Running) -> None:
    tensors.get("prefix=strip")
    tensors.get("prefix=strip&format=safetensors")
    assert len(tensors.others) == 4
    node.report(tensors.task, "succeeded")
    assert dashboard.http.delete(f"/api/runs/{tensors.run_id}?now=true").status_code == 200
    assert tensors.others == []


def test_converted_copy_is_deleted_when_it_is_not_used(tensors: Stored) -> None:
    tensors.get("prefix=strip")
    kept = tensors.dashboard.service.conversions
    for path in kept._folder.iterdir():
        long_ago = time.time() - conversions.KEEP_S - 1
        os.utime(path, (long_ago, long_ago))
    kept._swept_at = float("-inf")
    wait_for(lambda: kept.sweep() or tensors.others == [], "the sweep")
    assert tensors.get("prefix=strip").status_code == 200


def test_a_full_disk_refuses_before_anything_is_written(tensors: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors.dashboard.service.files, "free_bytes", lambda: 100)
    answer = tensors.get("prefix=strip")
    assert answer.status_code == 507
    assert "100 B free beyond its reserve" in answer.json()["detail"]["message"]
    assert tensors.others == []
    monkeypatch.undo()
    assert tensors.get("prefix=strip").status_code == 200


def test_a_long_conversion_is_asked_for_again(tensors: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.api.runs.checkpoints.WAIT_S", 0.0)
    answer = tensors.get_once("prefix=strip")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert tensors.get("prefix=strip").status_code == 200


def test_a_program_that_takes_too_long_is_ended(wrapped: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversions, "LEAST_S", 0)
    answer = wrapped.get("prefix=strip")
    assert answer.status_code == 422
    assert "could not be converted within 0 s" in answer.json()["detail"]["message"]
    assert wrapped.others == []


def test_the_dashboard_ends_while_a_program_writes(wrapped: Stored) -> None:
    service = wrapped.dashboard.service

    stored = checkpoint_queries.checkpoint_file(service.store, wrapped.id)
    assert stored is not None
    future = service.conversions.request(stored[0], Conversion(strip=True))
    service.conversions.close()
    assert future.done()


class Bomb:
    """What a hostile checkpoint does when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (shutil.copyfile, ("/dev/null", str(self.path)))


def bomb_of_dictionaries() -> bytes:
    """Few bytes that describe very many objects."""
    return b"\x80\x02" + b"}" * 8_000_000 + b"."


def zip_of(data: bytes, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        archive.writestr("a/data.pkl", data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        zip_of(b"\0" * 50_000_000, compression=zipfile.ZIP_DEFLATED),
        pytest.param(bomb_of_dictionaries(), marks=pytest.mark.long),  # the same reader finds it in a zip
        zip_of(bomb_of_dictionaries()),
    ],
    ids=["zip bomb", "pickle bomb", "pickle bomb in a zip"],
)
def test_hostile_files_cost_a_sentence(dashboard: Running, node: FakeNode, content: bytes) -> None:
    stored = Stored(dashboard, node, content)
    query = "format=safetensors&prefix=strip"
    answer = stored.get(query)
    assert answer.status_code == 422, answer.text
    assert stored.others in (
        [],
        [f"{stored.id}-{hashlib.sha256(content).hexdigest()[:16]}--strip--safetensors.json"],
    )


def test_nothing_in_a_hostile_checkpoint_is_run(dashboard: Running, node: FakeNode, tmp_path: Path) -> None:
    trace = tmp_path / "was-here"
    stored = Stored(dashboard, node, saved({"module.w": torch.ones(2), "x": Bomb(trace)}))
    for query in ("prefix=strip", "format=safetensors"):
        answer = stored.get(query)
        assert answer.status_code == 422 and "shutil.copyfile" in answer.json()["detail"]["message"]
    assert not trace.exists()


@pytest.mark.long
def test_names_cannot_break_out_of_the_note(dashboard: Running, node: FakeNode) -> None:
    stored = Stored(dashboard, node, saved({"model": {"w": torch.ones(1)}, "a\r\nSet-Cookie: ü=1": 1}))
    answer = stored.get("format=safetensors")
    assert "a??Set-Cookie: \\xfc=1" in answer.headers["x-rankzero-note"]
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("name", "stripped", "as_safetensors"),
    [
        ("work/last.pt", "last.no-prefix.pt", "last.safetensors"),
        ("checkpoint.pth.tar", "checkpoint.no-prefix.pth.tar", "checkpoint.safetensors"),
        ("out/checkpoint-5.tar", "checkpoint-5.no-prefix.tar", "checkpoint-5.safetensors"),
        ("epoch=3-step=5.ckpt", "epoch=3-step=5.no-prefix.ckpt", "epoch=3-step=5.safetensors"),
        ("model", "model.no-prefix", "model.safetensors"),
    ],
)
def test_the_form_is_seen_in_the_name(name: str, stripped: str, as_safetensors: str) -> None:
    assert Conversion(strip=True).file_name(name) == stripped
    assert Conversion(safetensors=True).file_name(name) == as_safetensors
    assert is_folder(name) is (name == "out/checkpoint-5.tar")


# -- by command ----------------------------------------------------------------------------------


@pytest.fixture
def rankzero(
    dashboard: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main.run(list(arguments))
        return code, *capfd.readouterr()

    return run


def test_a_command_fetches_it_in_another_form(wrapped: Stored, rankzero: Any, tmp_path: Path) -> None:
    code, out, err = rankzero("download", wrapped.run_id, "--strip-prefix", "--safetensors", "--json")
    assert (code, err) == (0, "")
    converted_file = json.loads(out)
    target = tmp_path / "step_10.no-prefix.safetensors"
    assert (converted_file["path"], converted_file["sha256"]) == (
        str(target),
        hashlib.sha256(target.read_bytes()).hexdigest(),
    )
    assert converted_file["note"].startswith("2 tensors of 'model' are in it")
    code, out, _ = rankzero("download", wrapped.run_id, "step_10.pt", "--strip-prefix")
    assert code == 0 and "Names lost their prefix module." in out
    assert list(torch.load(tmp_path / "step_10.no-prefix.pt", weights_only=True)["model"]) == ["w", "b"]


def test_a_command_waits_for_a_long_conversion(
    tensors: Stored, rankzero: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.api.runs.checkpoints.WAIT_S", 0.0)
    monkeypatch.setattr("cli.server.download.RETRY_S", 0.05)
    assert rankzero("download", tensors.run_id, "--strip-prefix")[0] == 0
    assert (tmp_path / "step_10.no-prefix.safetensors").exists()


@pytest.mark.long
def test_a_command_tells_why_it_cannot(dashboard: Running, node: FakeNode, rankzero: Any) -> None:
    stored = Stored(dashboard, node, saved([1, 2]))
    code, out, err = rankzero("download", stored.run_id, "--safetensors")
    assert (code, out) == (2, "") and "It does not contain a dictionary" in err


def test_the_prefix_is_listed(dashboard: Running, node: FakeNode, rankzero: Any) -> None:
    run_id = dashboard.launch()
    task = node.task()
    offer = node.offer(task, saved(WRAPPED)).model_copy(update={"prefix": "module."})
    node.client.offer_checkpoint(task, offer)
    assert dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()[0]["prefix"] == "module."
    code, out, _ = rankzero("checkpoints", run_id)
    assert code == 0 and "Names in work/last.pt begin with module.:" in out


def test_a_folder_is_told_how_to_be_unpacked(dashboard: Running, node: FakeNode, rankzero: Any, tmp_path: Path) -> None:
    stored = Stored(dashboard, node, tar_of({"config.json": b"{}"}), "work/out/checkpoint 5.tar")
    code, out, _ = rankzero("download", stored.run_id)
    assert code == 0 and f"tar -xf '{tmp_path}/checkpoint 5.tar'" in out
    assert subprocess.run(["tar", "-xf", "checkpoint 5.tar"], cwd=tmp_path, check=True).returncode == 0
    assert (tmp_path / "checkpoint-5/config.json").read_bytes() == b"{}"


@pytest.mark.parametrize("query", ["prefix=strip", "format=safetensors"])
def test_a_folder_is_not_converted(dashboard: Running, node: FakeNode, query: str) -> None:
    stored = Stored(dashboard, node, tar_of({"config.json": b"{}"}), "work/out/checkpoint-5.tar")
    answer = stored.get(query)
    assert answer.status_code == 422
    assert answer.json()["detail"]["message"].startswith("A folder cannot be converted")


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"checkpoint-5/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
