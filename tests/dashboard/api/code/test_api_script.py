"""GET /api/script tells a script's options, what the form could hand over, and its launcher; it runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_a_script_is_read_and_never_run(shared, tmp_path: Path):
    (tmp_path / "train.py").write_text(
        "import os, pathlib\npathlib.Path('ran').touch()\nos.environ['RANK']\n"
        "p.add_argument('--batch-size', type=int, default=8, help='per GPU')\nprint(1)"
    )
    said = shared.http.get("/api/script", params={"target": str(tmp_path), "entry": "train.py"}).json()
    (option,) = said["options"]
    assert (said["name"], said["parsers"]) == ("train.py", ["argparse"])
    assert (option["flags"], option["default"], option["type"]) == (["--batch-size"], 8, "int")
    (proposal,) = said["proposals"]
    assert (proposal["argument"], proposal["is_ticked"]) == ("--batch-size={batch_size}", True)
    assert (said["launcher"]["launcher"], said["launcher"]["line"]) == ("torchrun", 3)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("{}", "is a folder"),
        ("{}/missing.py", "is not a file"),
        ("{}/broken.py", "line 1"),
        ("image_classifier", "not a path"),
        ("relative.py", "not a path"),
        ("/dev/zero", "is not a file"),
        ("/a\0b", "NUL"),
    ],
)
def test_file_that_is_no_script_is_refused_in_one_sentence(shared, tmp_path: Path, target: str, sentence: str):
    (tmp_path / "broken.py").write_text("def (:")
    answer = shared.http.get("/api/script", params={"target": target.format(tmp_path)})
    assert answer.status_code == 422
    assert answer.json()["detail"]["field"] == "target"
    assert sentence in answer.json()["detail"]["message"]


def test_script_is_read_with_the_token_alone(shared):
    assert shared.anonymous().get("/api/script", params={"target": "/etc/passwd"}).status_code == 401


def test_a_dry_run_passes_what_the_script_takes_and_names_what_does_not_arrive(shared, tmp_path: Path):
    (tmp_path / "train.py").write_text("import os\nos.environ['RANK']\np.add_argument('--bs', type=int, default=256)")
    spec = {"target": str(tmp_path / "train.py"), "gpus_per_node": 1, "batch_size": 4, "lr": 0.1}
    preview = shared.http.post("/api/preview", json=spec).json()
    assert "--bs=4" in preview["commands"][0]["argv"]
    (sentence,) = preview["not_passed"]
    assert "RANKZERO_LR" in sentence and sentence in preview["warnings"]
