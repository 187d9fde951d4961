"""Which names are secrets, and that masked values come back as what they stood for or not at all."""

from __future__ import annotations

import pytest

from domain.masking.masking import (
    MASK,
    NothingBehind,
    is_secret_argument,
    is_secret_variable,
    masked_args,
    masked_spec,
    masked_text,
    masked_variable,
    unmasked_spec,
)
from domain.spec import RunSpec, SlurmOptions

SECRET_VARIABLES = (
    "HF_TOKEN HUGGING_FACE_HUB_TOKEN HFTOKEN AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN WANDB_API_KEY "
    "wandbApiKey OPENAI_KEY DB_PASSWORD DB_PASSWD DB_PWD MYSQL_PASS API_KEYS GITHUB_PAT SESSION_COOKIE BASIC_AUTH "
    "AUTHORIZATION GOOGLE_APPLICATION_CREDENTIALS SSH_PASSPHRASE KEY SENTRY_DSN"
).split()
PLAIN_VARIABLES = (
    "KEYBOARD KEYBOARD_LAYOUT TOKENIZERS_PARALLELISM TOKENIZER MAX_TOKENS NUM_TOKENS PAD_TOKEN_ID KEY_DIM MONKEY "
    "AUTHOR XAUTHORITY COMPASS OMP_NUM_THREADS PWD OLDPWD PATHS NCCL_DEBUG HF_HOME PASSES"
).split()
SECRET_ARGUMENTS = (
    "--api-key --wandb-key --wandb_key --hf-token --hf_token --token --password --db-passwd --client-secret --auth "
    "--cookie --apiKey --aws-access-key-id --aws_secret_access_key wandb.api_key +trainer.logger.token"
).split()
PLAIN_ARGUMENTS = (
    "--tokenizer --tokenizer-name --key-dim --num-keys --monkey --keyboard --image-key --label_key --pad-token "
    "--max-token --max-tokens --author --passes --bypass model.key_dim data.text_key --tokens-per-batch"
).split()


@pytest.mark.parametrize(
    ("before", "secret"),
    [
        ("rz_", "aB3" * 14 + "x"),
        ("attempt-12-n0abc-", "0f" * 32),
        ("job-7-", "0f" * 32),
        ("rankzero-0123456789=", "a-_" * 14 + "x"),
    ],
)
def test_our_own_tokens_are_masked_by_their_form(before: str, secret: str) -> None:
    assert masked_text(f"sent {before}{secret}, \\n{before}{secret}") == f"sent {before}{MASK}, \\n{before}{MASK}"
    assert masked_text(f"{before}{secret[:-1]}") == f"{before}{secret[:-1]}"
    spec = RunSpec(target="train.py", args=[f"--note=x{before}{secret}"], env={"NOTE": f"{before}{secret}"})
    assert secret not in masked_spec(spec).model_dump_json()
    assert unmasked_spec(masked_spec(spec), spec) == spec


@pytest.mark.parametrize("name", SECRET_VARIABLES)
def test_a_variable_named_like_a_secret_is_one(name):
    assert masked_variable(name, "abc") == MASK


@pytest.mark.parametrize("name", PLAIN_VARIABLES)
def test_false_friends_among_variables_are_shown(name):
    assert masked_variable(name, "abc") == "abc"


def test_a_switch_an_empty_value_and_the_path_of_a_file_are_no_secrets():
    assert masked_variable("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1") == "1"
    assert masked_variable("HF_TOKEN", "") == ""
    assert not is_secret_variable("AWS_SHARED_CREDENTIALS_FILE", "/home/me/.aws/credentials")
    assert is_secret_variable("DB_PASSWORD", "123456")


@pytest.mark.parametrize("name", SECRET_ARGUMENTS)
def test_an_argument_named_like_a_secret_is_masked_however_it_is_written(name):
    assert is_secret_argument(name)
    assert masked_args([f"{name}=abc", "--lr=1"]) == [f"{name}={MASK}", "--lr=1"]
    if name.startswith("--"):
        assert masked_args([name, "abc", "data"]) == [name, MASK, "data"]


@pytest.mark.parametrize("name", PLAIN_ARGUMENTS)
def test_false_friends_among_arguments_are_shown(name):
    assert masked_args([f"{name}=abc", name, "abc"]) == [f"{name}=abc", name, "abc"]


def test_a_switch_takes_no_word_and_figures_are_shown():
    args = ["--use-auth-token", "data", "--key=64", "--token", "--lr", "0.1", "--api-key=true"]
    assert masked_args(args) == args


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgresql://me:p@ss:w@db/x", f"postgresql://me:{MASK}@db/x"),
        ("https://ghp_abc@github.com/a/b", f"https://{MASK}@github.com/a/b"),
        ("ssh://git@github.com/a/b", "ssh://git@github.com/a/b"),
        ("https://h/x?a=1&token=abc&b=2", f"https://h/x?a=1&token={MASK}&b=2"),
        ("Authorization: Basic YWJj", f"Authorization: {MASK}"),
        ("curl -H 'X: Bearer abc'", f"curl -H 'X: Bearer {MASK}'"),
        ("a@b, http://h/p@q", "a@b, http://h/p@q"),
    ],
)
def test_credentials_within_a_value_are_masked_alone(value, shown):
    assert masked_variable("ENDPOINT", value) == shown
    assert masked_args([value]) == [shown]


def spec(**fields):
    return RunSpec(target="image_classifier", **fields)


REAL = spec(
    env={"HF_TOKEN": "hf_1", "URL": "https://me:pw@h/x", "A": "b"},
    args=["--api-key=k1", "--wandb-key", "k2", "--api-key=k3", "--lr=1", "https://u:p@h"],
    slurm=SlurmOptions(options=["--token=t1"]),
)


def test_masked_text_has_no_secret_and_comes_back_whole():
    shown = masked_spec(REAL)
    text = shown.model_dump_json()
    assert not any(secret in text for secret in ("hf_1", "me:pw", "k1", "k2", "k3", "u:p", "t1"))
    assert unmasked_spec(shown, REAL) == REAL


def test_changed_value_stays_beside_a_masked_one():
    given = masked_spec(REAL).model_copy(
        update={
            "env": {"HF_TOKEN": MASK, "NEW_TOKEN": "n"},
            "args": [f"--wandb-key={MASK}", "--api-key=mine"],
        }
    )
    kept = unmasked_spec(given, REAL)
    assert (kept.env, kept.args) == (
        {"HF_TOKEN": "hf_1", "NEW_TOKEN": "n"},
        ["--wandb-key=k2", "--api-key=mine"],
    )


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"env": {"OTHER_TOKEN": MASK}}, "OTHER_TOKEN"),
        ({"env": {"A": MASK}}, "A"),
        ({"env": {"HF_TOKEN": f"x{MASK}"}}, "HF_TOKEN"),
        ({"env": {"URL": f"https://you:{MASK}@h/x"}}, "URL"),
        ({"args": [f"--other-key={MASK}"]}, "other_key"),
        ({"args": [f"--wandb-key={MASK}", f"--wandb-key={MASK}"]}, "wandb_key"),
        ({"args": [MASK]}, "an argument"),
    ],
)
@pytest.mark.parametrize("like", [REAL, None])
def test_a_mask_with_nothing_behind_it_is_refused(fields, name, like):
    with pytest.raises(NothingBehind, match=f"{name} is .* hidden value") as refused:
        unmasked_spec(spec(**fields), like)
    assert refused.value.field == next(iter(fields))


@pytest.mark.parametrize("piece", ["x", "x-", "a.", "?", "&a", "x:", "a://", "bearer ", "x-key "])
def test_a_long_value_is_looked_through_once(piece: str) -> None:
    """Searched from each of its characters to its end, as it was, this would take hours."""
    text = piece * (1024 * 1024 // len(piece))
    assert "pw@" not in masked_text(f"{text} https://me:pw@host")
