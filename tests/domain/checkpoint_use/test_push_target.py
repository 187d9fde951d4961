"""Where a checkpoint may be pushed, and by which secrets."""

from __future__ import annotations

import pytest

from domain.checkpoint_use.push_target import PushTarget, secret_names
from domain.requests.errors import InvalidRequest


@pytest.mark.parametrize("text", ["hf:lab/digits", "hf:me/a.b_c-2", "s3://models", "s3://models/lab/step-1"])
def test_a_target_is_written_as_it_was_read(text: str) -> None:
    assert str(PushTarget.parse(text)) == text


def test_slashes_around_a_prefix_do_not_count() -> None:
    assert PushTarget.parse("s3://models/a/") == PushTarget("s3", "models", "a")


@pytest.mark.parametrize(
    "text",
    [
        "", "lab/digits", "hf:digits", "hf:lab/", "hf:lab/a/b", "hf:lab/a b", "hf:lab/../x", "hf:lab/a--b",
        "hf:lab/x.git", "hf:lab/-x", "hf:lab/" + "x" * 96, "hf://lab/digits", "hf:lab/x?endpoint=http://h",
        "https://huggingface.co/lab/digits", "s3:models", "s3://", "s3://Models/x", "s3://a", "s3://models/../x",
        "s3://models/a//b", "s3://user@models/x", "s3://models:9000/x", "s3://models/a\nb",
    ],
)  # fmt: skip
def test_whatever_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^target: must be "):
        PushTarget.parse(text)


def test_secrets_have_the_names_of_their_credentials() -> None:
    assert secret_names("hf", []) == {"HF_TOKEN": "HF_TOKEN"}
    assert secret_names("s3", ["AWS_ACCESS_KEY_ID=LAB_ID"]) == {
        "AWS_ACCESS_KEY_ID": "LAB_ID",
        "AWS_SECRET_ACCESS_KEY": "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN": "AWS_SESSION_TOKEN",
    }


def test_one_token_needs_no_credential_before_it() -> None:
    assert secret_names("hf", ["LAB_TOKEN"]) == {"HF_TOKEN": "LAB_TOKEN"}


@pytest.mark.parametrize("given", ["HF_TOKEN", "AWS_ACCESS_KEY_ID=", "HF_TOKEN=X", "AWS_ACCESS_KEY_ID=a b", "X"])
def test_a_secret_that_a_bucket_does_not_take_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest, match="AWS_ACCESS_KEY_ID=SECRET or AWS_SECRET_ACCESS_KEY=SECRET"):
        secret_names("s3", [given])
