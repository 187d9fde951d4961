"""What a stranger reads of paths: their last name."""

from __future__ import annotations

import pytest

from domain.text.paths import without_folders


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/train.py", "…/train.py"),
        ('  File "/home/me/my code/train.py", line 3, in main', '  File "…/train.py", line 3, in main'),
        ("The script '/tmp/x' does not exist.", "The script '…/x' does not exist."),
        ("--data=/mnt/sets/imagenet --out /mnt/o/", "--data=…/imagenet --out …/o"),
        ("PATH=/usr/bin:/opt/me/bin", "PATH=…/bin:…/bin"),
        ("file:///home/me/runs and ~/code/a.py", "…/runs and …/a.py"),
        ("/data/rz/runs/abcdefghij/attempts/1/node0/work is full", "…/work is full"),
        ("me@host:/srv/code/x", "me@host:…/x"),
        ("https://github.com/karpathy/nanoGPT s3://bucket/a/b", None),
        ("train/loss and/or work/last.pt, ../x/y ./a/b 12 /s", None),
    ],
)
def test_only_the_last_name_of_a_path_stays(text: str, shown: str | None) -> None:
    assert without_folders(text) == (text if shown is None else shown)


def test_a_known_path_may_have_blanks() -> None:
    known = ["/home/Jane Doe/my code/train.py", "/mnt/all data", "recipe"]
    text = "/home/Jane Doe/my code/train.py in /home/Jane Doe/my code/other.py with /mnt/all data/x y.txt of recipe"
    assert without_folders(text, known) == "…/train.py in …/other.py with …/x y.txt of recipe"
