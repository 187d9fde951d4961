"""Pushing into a bucket: what arrives, what is not sent twice, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain.checkpoint_use.model_card import CARD_NAME, _sealed
from tests.s3_server import Bucket, S3Server, error
from tests.worker.pushing.pushes import SMALL, WEIGHTS, checkpoint, printed, push
from worker.pushing import bucket_push as pushing

SECRETS = {"AWS_ACCESS_KEY_ID": "an-id-of-mine", "AWS_SECRET_ACCESS_KEY": "a-secret-of-mine"}
PART = 5 * 1024**2
"""The least that S3 takes as a part."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "PART_BYTES", PART)
    monkeypatch.setattr(pushing, "ATTEMPTS", 1)  # the client waits in real time, the push in the test's own


def parts_asked(bucket: Bucket) -> int:
    return bucket.server.asked["PUT part"]


def test_a_folder_arrives_whole_below_the_prefix(bucket: Bucket, tmp_path: Path) -> None:
    result = push(checkpoint(tmp_path, **{"tokenizer/vocab.json": b"[]"}), f"s3://{bucket.name}/models", SECRETS)
    names = {**WEIGHTS, **SMALL, "tokenizer/vocab.json": b"[]"}
    assert {key: bucket.content(key) for key in bucket.keys} == {f"models/{n}": c for n, c in names.items()}
    assert result["result"] | {"notes": []} == {
        "url": f"s3://{bucket.name}/models", "files": 5, "bytes": 5022, "sent_bytes": 5022, "notes": [],
    }  # fmt: skip


def test_a_large_file_comes_in_parts(bucket: Bucket, tmp_path: Path) -> None:
    content = bytes(range(256)) * (PART // 256) * 2 + b"the rest"
    file = tmp_path / "x"
    file.write_bytes(content)
    result = push(file, f"s3://{bucket.name}", SECRETS)["result"]
    assert bucket.content("model.safetensors") == content and result["sent_bytes"] == len(content)
    assert not bucket.uploads


def test_shards_do_not_join_an_earlier_single_file_that_would_be_loaded_in_their_place(
    bucket: Bucket, tmp_path: Path
) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"weights")
    push(file, f"s3://{bucket.name}/m", SECRETS)
    said = push(checkpoint(tmp_path), f"s3://{bucket.name}/m", SECRETS)
    assert "has the model.safetensors of an earlier push" in said["refused"]
    assert [*bucket.keys] == ["m/model.safetensors"]


def test_a_second_push_sends_nothing(bucket: Bucket, tmp_path: Path) -> None:
    source = checkpoint(tmp_path)
    push(source, f"s3://{bucket.name}/m", SECRETS)
    assert push(source, f"s3://{bucket.name}/m", SECRETS)["result"]["sent_bytes"] == 0


def test_a_cut_push_continues_after_the_parts_that_arrived(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"1" * PART + b"2" * PART + b"3" * PART)
    refuse_part(bucket.server, 3)
    lines = printed(file, f"s3://{bucket.name}", SECRETS)
    assert lines[-1]["failed"].endswith("Push again: what has arrived is not sent a second time.")
    assert bucket.parts("model.safetensors") == [1, 2]
    bucket.server.refuse = lambda method, path: None
    result = push(file, f"s3://{bucket.name}", SECRETS)["result"]
    assert result["sent_bytes"] == PART and bucket.content("model.safetensors") == file.read_bytes()


def test_a_short_cut_is_waited_for(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"1" * PART + b"2" * PART)
    refuse_part(bucket.server, 2, times=2)
    lines = printed(file, f"s3://{bucket.name}", SECRETS)
    assert lines[-1]["result"]["sent_bytes"] == 2 * PART
    assert any("tries again in" in line["progress"][2] for line in lines[:-1])


def test_parts_of_other_bytes_are_replaced(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"1" * PART + b"2" * PART)
    refuse_part(bucket.server, 2)
    printed(file, f"s3://{bucket.name}", SECRETS)
    bucket.server.refuse = lambda method, path: None
    file.write_bytes(b"9" * PART + b"2" * PART)
    push(file, f"s3://{bucket.name}", SECRETS)
    assert bucket.content("model.safetensors") == file.read_bytes()


def refuse_part(server: S3Server, number: int, times: int = 10_000) -> None:
    left = [times]

    def refuse(method: str, path: str) -> Any:
        if method != "PUT" or f"partNumber={number}" not in path or not left[0]:
            return None
        left[0] -= 1
        return error("503 Service Unavailable", "SlowDown")

    server.refuse = refuse


def test_what_changed_in_the_bucket_is_no_success(bucket: Bucket, tmp_path: Path, monkeypatch: Any) -> None:
    send = pushing.BucketPush._send

    def send_and_change(self: Any, file: Any, *more: Any) -> None:
        send(self, file, *more)
        bucket.client.put_object(Bucket=bucket.name, Key=file.name, Body=b"z" * file.size_bytes)

    monkeypatch.setattr(pushing.BucketPush, "_send", send_and_change)
    assert "differs from what was sent" in push(checkpoint(tmp_path), f"s3://{bucket.name}", SECRETS)["failed"]


def test_a_bucket_that_is_not_there_is_named(bucket: Bucket, tmp_path: Path) -> None:
    refusal = push(checkpoint(tmp_path), "s3://no-such-bucket/x", SECRETS)["refused"]
    assert refusal == "The bucket no-such-bucket does not exist; create it, or name another."


def test_denied_access_is_told_without_the_secret(bucket: Bucket, tmp_path: Path) -> None:
    bucket.server.refuse = lambda method, path: error("403 Forbidden", "a-secret-of-mine")
    lines = printed(checkpoint(tmp_path), f"s3://{bucket.name}", SECRETS)
    bucket.server.refuse = lambda method, path: None
    assert "denies access" in lines[-1]["refused"] and "a-secret-of-mine" not in json.dumps(lines)


def test_a_bucket_is_made_public_by_nobody(bucket: Bucket, tmp_path: Path) -> None:
    refusal = push(checkpoint(tmp_path), f"s3://{bucket.name}", SECRETS, is_private=False)["refused"]
    assert refusal == "Who may read a bucket is the bucket's own setting: push without --public."
    assert not bucket.keys


def test_a_card_that_somebody_edited_stays(bucket: Bucket, tmp_path: Path) -> None:
    source, target = checkpoint(tmp_path), f"s3://{bucket.name}/m"
    card = {"text": _sealed("# digits"), "pictures": {}}
    push(source, target, SECRETS, card=card)
    bucket.client.put_object(Bucket=bucket.name, Key=f"m/{CARD_NAME}", Body=b"# Mine")
    notes = push(source, target, SECRETS, card=card)["result"]["notes"]
    assert bucket.content(f"m/{CARD_NAME}") == b"# Mine"
    assert notes == ["README.md was edited there, so it was left as it is."]
