"""What Linux cannot pass to a program is refused at the launch, by name and with the limit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from domain.requests.errors import InvalidRequest
from domain.spec import MOST_BYTES, RunSpec, check_size

KIB = 1024


def refusal(**spec) -> tuple[str | None, str]:
    with pytest.raises(InvalidRequest) as refused:
        check_size(RunSpec(target="image_classifier", **spec))
    return refused.value.field, str(refused.value)


def test_a_variable_is_too_long_with_its_name():
    field, message = refusal(env={"BLOB": "x" * (128 * KIB - 5)})
    assert field == "env" and "BLOB has 131,073 bytes" in message and "131,072 (128 KiB)" in message


def test_many_variables_are_too_much_together():
    field, message = refusal(env={f"V{n}": "ä" * 50_000 for n in range(11)})
    assert field == "env" and "(1 MiB)" in message and "environment (1,100,1" in message


def test_arguments_and_variables_count_together_and_each_has_its_pointer():
    half = {f"V{n}": "x" * 60_000 for n in range(9)}
    check_size(RunSpec(target="image_classifier", env=half))
    field, message = refusal(env=half, args=["y" * 60_000] * 10)
    assert field == "args" and "arguments (600,090 bytes)" in message
    assert refusal(env={f"V{n}": "" for n in range(100_000)})[0] == "env"


def test_linux_takes_what_is_just_small_enough():
    env = {f"V{n}": "x" * (128 * KIB - 4) for n in range(7)}
    rest = MOST_BYTES - sum(len(name) + len(value) + 10 for name, value in env.items())
    args = ["y" * 60_000, "y" * (rest - 60_000 - 18)]
    check_size(RunSpec(target="image_classifier", env=env, args=args))
    subprocess.run([sys.executable, "-c", "", *args], env=env, check=True)
    refusal(env=env, args=[*args, ""])


def test_a_stored_run_from_before_the_limit_can_still_be_read():
    assert RunSpec(target="image_classifier", env={f"V{n}": "x" * 100_000 for n in range(30)}).env
