"""What people call requirements is installed as it is meant, or refused with the line and what to write instead."""

from __future__ import annotations

import pytest

from domain.environments.locks import BadLock, Lock, choose, contents, required
from domain.environments.requirements import decoded

TORCH = "torch==2.9.0\n"


def refusals(text: str) -> tuple[str, str]:
    """Why `auto` leaves the file out, and why `lock` refuses it; empty where it is taken."""
    files = {"requirements.txt": text}
    lock, remark = choose(files, "train.py", files.get)
    try:
        required("lock", files, "train.py", files.get)
    except BadLock as error:
        return "" if lock else remark, str(error)
    return "" if lock else remark, ""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_a_file_is_read_in_the_encoding_that_it_has(encoding: str) -> None:
    text = "torch==2.9.0\r\nnumpy==2.0  # ä\r\n"
    assert decoded(text.encode(encoding)) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "numpy==2.0\ntorch==2.9.0+cu126",
            "requirements.txt line 2: torch==2.9.0+cu126 is not on PyPI: add the line "
            "`--extra-index-url https://download.pytorch.org/whl/cu126`.",
        ),
        ("torch==2.9.0+cpu", "https://download.pytorch.org/whl/cpu"),
        (
            f"{TORCH}torch-scatter==2.1.2+pt29cu126",
            "line 2: torch-scatter==2.1.2+pt29cu126 is not on PyPI: add the index",
        ),
        (
            f"{TORCH}\nnumpy @ file:///croot/numpy_1/work/dist/numpy-1.26.4-cp311-cp311-linux_x86_64.whl",
            "requirements.txt line 3: numpy is a path of the machine that wrote it (file:///croot/numpy_1/work/dist/",
        ),
        (f"{TORCH}idna @ file:///home/conda/feedstock_root/idna/work", "line 2: idna is a path of the machine"),
        (f"{TORCH}file:///C:/wheels/idna-3.1-py3-none-any.whl", "write idna==3.1."),
        (
            "numpy=1.26.4=py311h64a7726_0\npytorch=2.5.1=py3.11",
            "requirements.txt line 1 (numpy=1.26.4=py311h64a7726_0)",
        ),
        ("# Name  Version\nnumpy   1.26.4  py311h64a7726_0  conda-forge", "requirements.txt line 2 (numpy   1.26.4"),
        ("Package    Version\n---------- -------\ntorch      2.9.0", "requirements.txt line 1 (Package    Version)"),
    ],
)
def test_what_cannot_be_installed_is_refused_with_its_line_and_what_to_write(text: str, says: str) -> None:
    auto, lock = refusals(text)
    assert says in auto and auto == lock


def test_the_line_of_an_included_file_is_named() -> None:
    files = {"requirements.txt": f"-r gpu/base.txt\n{TORCH}", "gpu/base.txt": "# x\nidna \\\n==3.1\nx=1=2\n"}
    assert "gpu/base.txt line 4 (x=1=2)" in choose(files, "train.py", files.get)[1]


@pytest.mark.parametrize(
    "text",
    [
        "--extra-index-url https://download.pytorch.org/whl/cu126\ntorch==2.9.0+cu126",
        "--find-links=https://wheels.example.org\ntorch==2.9.0+lab1",
        "torch @ https://download.pytorch.org/whl/cu126/torch-2.9.0%2Bcu126-cp311-cp311-linux_x86_64.whl",
        "https://download.pytorch.org/whl/cpu/torch-2.9.0-cp311-cp311-linux_x86_64.whl",
        "-i https://user:s3cret@packages.example.org/simple\ntorch[opt] == 2.9.0 ; python_version > '3'",
    ],
)
def test_what_names_its_source_is_taken(text: str) -> None:
    assert refusals(text) == ("", "")


@pytest.mark.parametrize(
    "line",
    [
        "git+https://github.com/example/some-lib.git@1f0c1d0f4a0d1f0c1d0f4a0d1f0c1d0f4a0d1f0c",
        "some-lib @ git+https://github.com/example/other.git@1f0c1d0f4a0d1f0c1d0f4a0d1f0c1d0f4a0d1f0c",
        "git+ssh://git@github.com/example/x.git@v1#egg=some-lib",
        "-e git+https://github.com/example/some-lib@main#egg=some-lib",
    ],
)
def test_a_repository_is_named_by_its_package_and_left_to_lock(line: str) -> None:
    auto, lock = refusals(f"{TORCH}{line}")
    assert (
        auto
        == "requirements.txt line 2: some-lib is in a git repository, which each node fetches: choose `lock` for it."
    )
    assert lock == ""
    files = {"requirements.txt": f"{TORCH}{line}"}
    assert contents(Lock("requirements.txt", "requirements.txt"), files.get).packages == 2


def test_a_file_that_is_named_is_tried_as_it_stands() -> None:
    files = {"requirements.txt": "torch==2.9.0+cu126"}
    assert required("requirements.txt", files, "train.py", files.get)[1].torch == "2.9.0+cu126"
