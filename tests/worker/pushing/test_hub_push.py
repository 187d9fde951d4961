"""Pushing to a hub: what arrives, what is not sent twice, what is refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.checkpoint_use.model_card import CARD_NAME, _sealed, is_unedited
from tests.hub_server import TOKEN, HubServer, Repository, hub_server
from tests.worker.pushing.pushes import SMALL, WEIGHTS, checkpoint, printed, push
from worker.pushing.hub_push import stale_weights

TARGET = "hf:lab/digits"
SECRETS = {"HF_TOKEN": TOKEN}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with hub_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def oids() -> dict[str, int]:
    return {hashlib.sha256(content).hexdigest(): len(content) for content in WEIGHTS.values()}


def test_a_folder_arrives_whole_in_a_private_repository(hub: HubServer, tmp_path: Path) -> None:
    lines = printed(checkpoint(tmp_path), TARGET, SECRETS)
    repository = hub.repositories["lab/digits"]
    assert repository.private and repository.files == WEIGHTS | SMALL
    assert repository.messages == ["Add step 7"]
    result = lines[-1]["result"]
    assert result["url"] == f"{hub.url}/lab/digits" and result["revision"] == repository.revision
    assert (result["files"], result["bytes"], result["sent_bytes"]) == (4, 5020, 5000)
    assert [line["progress"][:2] for line in lines[:-1]][-1] == [5020, 5020]


def test_parts_are_joined(hub: HubServer, tmp_path: Path) -> None:
    hub.part_bytes = 700
    assert push(checkpoint(tmp_path), TARGET, SECRETS)["result"]["sent_bytes"] == 5000
    assert hub.repositories["lab/digits"].files == WEIGHTS | SMALL


def test_a_second_push_sends_nothing_and_commits_nothing(hub: HubServer, tmp_path: Path) -> None:
    source = checkpoint(tmp_path)
    push(source, TARGET, SECRETS)
    again = push(source, TARGET, SECRETS)["result"]
    assert again["sent_bytes"] == 0 and again["revision"] == hub.repositories["lab/digits"].revision
    assert hub.received == oids() and len(hub.repositories["lab/digits"].messages) == 1


def test_what_arrived_before_a_broken_commit_is_not_sent_again(hub: HubServer, tmp_path: Path) -> None:
    hub.statuses["POST commit"] = [400]
    assert push(checkpoint(tmp_path), TARGET, SECRETS)["refused"] == "hf:lab/digits answered 400: so it is."
    assert hub.received == oids() and hub.repositories["lab/digits"].files == {}
    assert push(checkpoint(tmp_path), TARGET, SECRETS)["result"]["sent_bytes"] == 0
    assert hub.received == oids() and hub.repositories["lab/digits"].files == WEIGHTS | SMALL


@pytest.mark.real
def test_a_cut_connection_costs_only_the_file_that_was_under_way(hub: HubServer, tmp_path: Path) -> None:
    hub.cuts = 1
    source = checkpoint(tmp_path, **{"model-00002-of-00002.safetensors": b"c" * 500_000})
    assert push(source, TARGET, SECRETS)["result"]["files"] == 4  # the library waits a second
    first = hashlib.sha256(WEIGHTS["model-00001-of-00002.safetensors"]).hexdigest()
    assert len(hub.objects) == 2 and hub.received[first] <= 3000 * 2


@pytest.mark.real
def test_a_killed_push_continues_with_the_file_that_was_under_way(hub: HubServer, tmp_path: Path) -> None:
    first, second = (hashlib.sha256(content).hexdigest() for content in WEIGHTS.values())
    source, request = checkpoint(tmp_path), {"name": "", "target": TARGET, "secrets": SECRETS, "message": "Add"}
    hub.hold = second
    with start(source, request) as program:
        assert hub.held.wait(120)
        program.kill()
    hub.hold = ""
    hub.go_on.set()
    assert first in hub.objects and hub.repositories["lab/digits"].files == {}
    with start(source, request) as program:
        output, _ = program.communicate()
    assert json.loads(output.splitlines()[-1])["result"]["sent_bytes"] == len(WEIGHTS[max(WEIGHTS)])
    assert hub.received[first] == len(WEIGHTS[min(WEIGHTS)])
    assert hub.repositories["lab/digits"].files == WEIGHTS | SMALL


def start(source: Path, request: dict[str, Any]) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-P", "-m", "worker.pushing", str(source)]
    program = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin is not None
    program.stdin.write(json.dumps(request).encode())
    program.stdin.close()
    program.stdin = None
    return program


def test_a_public_repository_gets_nothing_unless_asked_to(hub: HubServer, tmp_path: Path) -> None:
    hub.repositories["lab/digits"] = Repository(private=False)
    refusal = push(checkpoint(tmp_path), TARGET, SECRETS)["refused"]
    assert refusal == "hf:lab/digits is public: push to another repository, or with --public."
    assert not hub.received and not hub.repositories["lab/digits"].files
    assert push(checkpoint(tmp_path), TARGET, SECRETS, is_private=False)["result"]["files"] == 4


def test_public_creates_a_public_repository_and_opens_no_private_one(hub: HubServer, tmp_path: Path) -> None:
    push(checkpoint(tmp_path), TARGET, SECRETS, is_private=False)
    assert not hub.repositories["lab/digits"].private
    hub.repositories["lab/digits"].private = True
    notes = push(checkpoint(tmp_path), TARGET, SECRETS, is_private=False)["result"]["notes"]
    assert notes == ["hf:lab/digits is private and stays so; its settings make it public."]


def test_a_wrong_token_is_refused_and_in_no_line(hub: HubServer, tmp_path: Path) -> None:
    lines = printed(checkpoint(tmp_path), TARGET, {"HF_TOKEN": "hf_another-token-1234"})
    assert "denies access (401)" in lines[-1]["refused"]
    assert "another-token" not in json.dumps(lines) and not hub.repositories


def test_a_hub_that_is_away_for_long_is_tried_again_and_then_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    lines = printed(checkpoint(tmp_path), TARGET, SECRETS)
    assert lines[-1]["failed"].startswith("hf:lab/digits cannot be reached (ConnectError).")
    assert len([line for line in lines[:-1] if "tries again in" in line["progress"][2]]) == 7


def test_what_arrived_differently_is_no_success(hub: HubServer, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(HubServer, "commit", lambda self, repository, lines: repository.messages.append("lost"))
    assert "differs from what was sent" in push(checkpoint(tmp_path), TARGET, SECRETS)["failed"]


CARD = {"text": _sealed("# digits"), "pictures": {"loss.png": b64encode(b"a picture").decode()}}


def test_the_card_is_renewed_until_somebody_edits_it(hub: HubServer, tmp_path: Path) -> None:
    source = checkpoint(tmp_path)
    push(source, TARGET, SECRETS, card=CARD)
    files = hub.repositories["lab/digits"].files
    assert is_unedited(files[CARD_NAME].decode()) and files["loss.png"] == b"a picture"
    push(source, TARGET, SECRETS, card=CARD | {"text": _sealed("# digits, step 8")})
    assert b"step 8" in files[CARD_NAME]
    files[CARD_NAME] = files[CARD_NAME].replace(b"# digits", b"# My digits")
    notes = push(source, TARGET, SECRETS, card=CARD)["result"]["notes"]
    assert b"# My digits" in files[CARD_NAME]
    assert notes == ["README.md was edited there, so it was left as it is."]


def test_a_card_of_the_training_itself_is_the_card(hub: HubServer, tmp_path: Path) -> None:
    source = checkpoint(tmp_path, **{CARD_NAME: b"# By its author"})
    notes = push(source, TARGET, SECRETS, card=CARD)["result"]["notes"]
    assert hub.repositories["lab/digits"].files[CARD_NAME] == b"# By its author"
    assert notes == ["The checkpoint has a README.md of its own, so Rankzero wrote no card."]


def test_weights_of_an_earlier_push_do_not_stay_beside_new_ones(hub: HubServer, tmp_path: Path) -> None:
    hub.repositories["lab/digits"] = Repository(
        private=True, files={"model.safetensors": b"old", "notes.txt": b"mine", "adapter_model.safetensors": b"lora"}
    )
    notes = push(checkpoint(tmp_path), TARGET, SECRETS)["result"]["notes"]
    assert hub.repositories["lab/digits"].files.keys() == {
        *WEIGHTS, *SMALL, "notes.txt", "adapter_model.safetensors",
    }  # fmt: skip
    assert notes == ["Weights of an earlier push were removed from the branch: model.safetensors."]


def test_only_weights_replace_weights() -> None:
    assert stale_weights(["model.safetensors"], ["optimizer.pt"]) == []
    there = ["model-00003-of-00003.safetensors", "model.safetensors.index.json", "a/model.safetensors", "x.bin"]
    assert stale_weights(there, ["model.safetensors"]) == there[:2]


def test_links_are_left_out(hub: HubServer, tmp_path: Path) -> None:
    source = checkpoint(tmp_path)
    (source / "leak").symlink_to("/etc/passwd")
    push(source, TARGET, SECRETS)
    assert "leak" not in hub.repositories["lab/digits"].files


def test_a_single_file_gets_the_name_that_it_is_asked_for(hub: HubServer, tmp_path: Path) -> None:
    file = tmp_path / "step_7.safetensors"
    file.write_bytes(b"x" * 500)
    push(file, TARGET, SECRETS, name="model.safetensors")
    assert hub.repositories["lab/digits"].files == {"model.safetensors": b"x" * 500}
