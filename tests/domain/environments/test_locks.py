"""Which lock file an environment is built from, and what it names."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from domain.environments.locks import (
    BadLock,
    Lock,
    candidates,
    choose,
    contents,
    lock_text,
    named_lock,
    required_hashes,
)
from domain.spec import RunSpec

UV = '[[package]]\nname = "torch"\nversion = "2.9.1"\n[[package]]\nname = "numpy"\nversion = "2.0"\n'


def chosen(files: dict[str, str], entry: str | None = "train.py") -> tuple[str | None, str]:
    lock, remark = choose(set(files), entry, files.get)
    return (lock.path if lock else None), remark


def test_the_nearest_lock_with_torch_is_taken():
    files = {"uv.lock": UV, "requirements.txt": "torch==2.9.1", "a/requirements.txt": "torch==2.8.0", "b/uv.lock": "x"}
    assert chosen(files) == ("uv.lock", "")
    assert chosen(files, "a/train.py") == ("a/requirements.txt", "")
    assert chosen(files, "a/deep/er/train.py") == ("a/requirements.txt", "")
    path, remark = chosen(files, "b/train.py")
    assert path == "uv.lock"
    assert "b/uv.lock cannot be read as a lock file" in remark


@pytest.mark.parametrize(
    ("files", "remark"),
    [
        ({}, ""),
        ({"requirements.txt": "torch>=2\nnumpy"}, "requirements.txt is no lock: torch, numpy have no version."),
        ({"requirements.txt": "numpy==2.0"}, "requirements.txt has no torch: it does not say what to train with."),
        ({"requirements.txt": "# nothing"}, "requirements.txt names no package."),
        ({"pixi.lock": "- pypi: torch"}, "pixi.lock needs the nodes' own pixi: choose `lock` for it."),
        ({"environment.yml": "- pytorch=2.9"}, "environment.yml needs the nodes' own conda: choose `lock` for it."),
    ],
)
def test_what_is_no_lock_to_train_with_is_left_out_and_says_why(files: dict[str, str], remark: str):
    path, said = chosen(files)
    assert path is None
    assert said.startswith(remark)


def test_requirements_are_read_as_pip_reads_them():
    files = {
        "requirements.txt": "-r more/base.txt\n-c limits.txt\n--index-url https://x\nTorch_Vision == 0.24 ;"
        " python_version > '3' # why\ntorch @ https://x/torch.whl\n-e .\n./libs/a\nnumpy===2.0 \\\n  --hash=sha256:"
        + "a"
        * 64,
        "more/base.txt": "-r ../requirements.txt\nidna>=3,<4\n",
        "limits.txt": "urllib3<2",
    }
    lock = Lock("requirements.txt", "requirements.txt")
    names = contents(lock, files.get)
    assert (names.packages, names.torch, names.unpinned) == (4, "", ("idna",))
    assert required_hashes(lock, files.get) == {"numpy": {"a" * 64}}
    assert "idna>=3,<4" in lock_text(lock, files.get)


def test_a_choice_is_a_word_a_lock_file_or_an_absolute_path():
    assert named_lock("uv.lock[cu128, dev]") == Lock("uv.lock", "uv.lock", ("cu128", "dev"))
    assert named_lock("requirements/gpu.txt") == Lock("requirements/gpu.txt", "requirements.txt")
    assert [named_lock(choice) for choice in ("auto", "/opt/env", "/opt/uv.lock", "somewhere")] == [None] * 4
    for choice in ("auto", "lock", "none", "/opt/env", "pylock.gpu.toml", "env/conda.yaml"):
        assert RunSpec(target="/t.py", environment=choice).environment == choice
    for choice in ("", "locks", "../uv.lock", "a\nuv.lock"):
        with pytest.raises(ValidationError, match="environment"):
            RunSpec(target="/t.py", environment=choice)


def test_candidates_are_ordered_by_nearness_then_kind():
    paths = {"uv.lock", "requirements.txt", "a/pixi.lock", "a/b/environment.yaml", "c/uv.lock"}
    assert [lock.path for lock in candidates(paths, "a/b/train.py")] == [
        "a/b/environment.yaml", "a/pixi.lock", "uv.lock", "requirements.txt",
    ]  # fmt: skip


def test_a_lock_that_cannot_be_read_says_what_to_do():
    with pytest.raises(BadLock, match="make it again"):
        contents(Lock("uv.lock", "uv.lock"), {"uv.lock": "= ["}.get)
