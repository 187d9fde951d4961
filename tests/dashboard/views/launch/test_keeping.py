"""What the tab keeps of a filled form: nothing that looks secret, nothing that another version's form has not."""

from __future__ import annotations

import pytest

from dashboard.views.launch.kept_form import _fits, without_secrets


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("launch_args", "--lr 0.1 --pad-token x --key-dim 8"),
        ("launch_args", "--note 'an open quote"),
        ("launch_git_url", "https://github.com/karpathy/nanoGPT"),
        ("launch_own_ab12cd34ef_width", "64"),
        ("launch_probe", False),
        ("sweep_parameters", "lr=1e-4, 3e-4"),
    ],
)
def test_ordinary_value_is_kept(name: str, value: str | bool) -> None:
    assert without_secrets({name: value}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("launch_args", "--wandb-key hush"),
        ("launch_args", "--lr 1 --api-key=hush"),
        ("launch_args", "--api-key=hush --name 'an open quote"),
        ("launch_args", "--api-key=********"),
        ("launch_git_url", "https://me:hush@example.org/code"),
        ("launch_own_ab12cd34ef_api_key", "hush"),
        ("launch_own_ab12cd34ef_wandb.api_key", "hush"),
    ],
)
def test_secret_value_is_not_kept(name: str, value: str) -> None:
    assert without_secrets({name: value}) == {}


def test_lines_of_the_environment_are_kept_one_by_one() -> None:
    env = "OMP_NUM_THREADS=2\nHF_TOKEN=hush\n  WANDB_API_KEY = hush\nA=b"
    assert without_secrets({"launch_env": env}) == {"launch_env": "OMP_NUM_THREADS=2\nA=b"}


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("launch_precision", "bf16", True),
        ("launch_precision", "fp4", False),
        ("launch_probe", True, True),
        ("launch_probe", "yes", False),
        ("launch_recipe", "image_classifier", True),
        ("launch_recipe", "gone", False),
        ("launch_upload", "code.zip", False),
        ("launch_filled_from", "abc", False),
        ("launch_name", "keep me", True),
        ("launch_name", "x" * 100_001, False),
        ("launch_name", {"a": 1}, False),
    ],
)
def test_only_what_the_form_has_is_taken_back(name: str, value: object, fits: bool) -> None:
    assert _fits(name, value) is fits
