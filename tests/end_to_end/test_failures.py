"""A run that goes wrong ends `failed` with the reason in words; the worker goes on."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.product import Product, wait_for

SCRIPTS = Path(__file__).parent / "scripts"
BROKEN = SCRIPTS / "broken.py"

COPY = "which contains a copy of the code without the files that .gitignore excludes"
ROWS: dict[str, tuple[dict, str, str, str | None]] = {
    "raise": (
        {},
        "script error",
        "rank 1 on NODE: ValueError: the picture has 3 channels, the model wants 1, broken.py line LINE",
        None,
    ),
    "raise --rank=0": (
        {},
        "script error",
        "rank 0 on NODE: ValueError: the picture has 3 channels, the model wants 1, broken.py line LINE",
        None,
    ),
    "exit": (
        {},
        "exit code",
        "rank 1 on NODE: exit code 3, no traceback; last line: rank 1 is about to do: exit",
        "The script chose this exit code itself (sys.exit): its log may show why.",
    ),
    "kill": (
        {},
        "killed",
        "rank 1 on NODE was killed (SIGKILL); the kernel does this when memory runs out",
        "If nobody killed it, watch the node's memory during training, and lower the batch or the number of "
        "data-loader workers.",
    ),
    "import": (
        {},
        "script error",
        "rank 1 on NODE: ModuleNotFoundError: No module named 'a_module_nobody_has', broken.py line LINE",
        "Install a_module_nobody_has in the Python that trains, or choose another Python with --python; "
        "your own module must be in the folder that is launched.",
    ),
    "garbage": (
        {},
        "script error",
        "rank 1 on NODE: RuntimeError: after the garbage, broken.py line LINE",
        None,
    ),
    "memory": (
        {},
        "out of memory",
        "rank 1 on NODE: not enough memory: MemoryError, broken.py line LINE",
        "Halve the batch per process in the script and double its gradient accumulation, which keeps the global "
        "batch; with {batch_size} and {accumulate} in its arguments the form sets both. Fewer data-loader workers need "
        "less memory, too.",
    ),
    "file": (
        {},
        "script error",
        "rank 1 on NODE: FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv', broken.py line LINE",
        f"data/train.csv is looked up in the run's working directory, {COPY}: launch it with --link "
        "data=/path/to/data, or in place with --workdir FOLDER.",
    ),
    "print": (
        {},
        "script error",
        "rank 1 on NODE: exit code 4 after KeyError: 'label', broken.py line LINE",
        None,
    ),
    "print --nonsense": (
        {"gpus_per_node": 1},  # of two ranks either can be the first
        "exit code",
        "rank 0 on NODE: bad argument (exit code 2): broken.py: error: unrecognized arguments: --nonsense",
        "Correct the extra arguments (those after -- on the command line); the script's own --help lists them.",
    ),
    "peer --rank=-1": (
        {},
        "script error",
        "rank 1 on NODE: ValueError: bad labels, broken.py line LINE",
        None,
    ),
    "wait --rank=-1": (
        {},
        "timed out",
        "rank 0 on NODE: all_reduce timed out after 4 s: rank 1 never arrived, broken.py line LINE",
        "Check what rank 1 did then (fewer batches than the others, a collective that only some ranks call, slow "
        "saving or loading); if the wait is intended, give init_process_group a longer timeout.",
    ),
    "port --rank=0": (
        {"strategy": "single"},
        "port in use",
        "rank 0 on NODE: port PORT is in use by another program, broken.py line LINE",
        "The script chooses this port itself (MASTER_PORT or a tcp:// address in it): let it choose a "
        "free one, or launch it with torchrun and init_process_group() without an address, which gets "
        "its own port.",
    ),
    "spawn --rank=0": (
        {"launcher": "python", "gpus_per_node": 1},
        "script error",
        "rank 1 on NODE: ValueError: bad labels, broken.py line LINE",
        None,
    ),
}
"""Arguments of the script -> the spec's fields, the reason, the sentence, the next step."""
SLOWER = [
    "raise",
    "import",
    "garbage",
    "file",
    "print",
    "print --nonsense",
    "wait --rank=-1",
    "port --rank=0",
]
"""Told apart by the same path as the others; tests/worker/diagnosis/causes reads their logs."""
PLACES = {
    "raise": "the picture has 3 channels", "import": "import a_module_nobody_has", "garbage": "after the garbage",
    "memory": "bytearray(2**40)", "file": 'with open("data', "print": 'KeyError("label")', "port": "init_method=",
    "peer": 'raise ValueError("bad labels")', "wait": "dist.all_reduce", "spawn": 'raise ValueError("bad labels")',
}  # fmt: skip


def line_of(how: str) -> int | None:
    """Where it happens in the script."""
    lines = enumerate(BROKEN.read_text().splitlines(), 1)
    found = [number for number, line in lines if how in PLACES and PLACES[how] in line]
    return None if not found else found[0] if how == "peer" else found[-1]


@pytest.mark.parametrize(
    "arguments", [pytest.param(row, marks=pytest.mark.long if row in SLOWER else ()) for row in ROWS]
)
def test_failed_run_says_why_and_what_to_try(product: Product, arguments: str):
    assert_explained(product, arguments)


def assert_explained(product: Product, arguments: str) -> None:
    """The broken script fails, for the reason and with the next step that belong to its arguments."""
    spec, reason, sentence, next_step = ROWS[arguments]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        args = [*arguments.split(), *([f"--port={port}"] if "port" in arguments else [])]
        run_id = product.launch(BROKEN, **({"gpus_per_node": 2, "args": args} | spec))
        ended = product.wait_state(run_id)
    sentence = sentence.replace("NODE", product.get("/api/nodes")[0]["name"])
    sentence = sentence.replace("LINE", str(line_of(arguments.split()[0]))).replace("PORT", str(port))
    assert (ended["state"], ended["reason"], ended["message"]) == ("failed", reason, sentence)
    assert ended["next_step"] == next_step
    assert not product.ranks(run_id)


def test_the_first_line_of_what_a_rank_printed_is_kept(product: Product):
    run_id = product.launch(BROKEN, gpus_per_node=2, args=["exit"])
    product.wait_state(run_id)
    printed = product.request("GET", f"/api/runs/{run_id}/logs?rank=1&stream=out").content
    assert printed.startswith(b"rank 1 is about to do: exit")


def test_garbage_arrives_byte_for_byte(product: Product):
    run_id = product.launch(BROKEN, gpus_per_node=2, args=["garbage"])
    product.wait_state(run_id)
    printed = product.request("GET", f"/api/runs/{run_id}/logs?rank=1&stream=out").content
    assert bytes(range(256)) * 40 in printed


def test_a_loss_that_is_not_a_number_is_kept_and_shown(product: Product):
    run_id = product.launch(SCRIPTS / "logging_nan.py", strategy="single")
    assert product.wait_state(run_id)["state"] == "succeeded"
    points = product.get(f"/api/runs/{run_id}/metrics")["train/loss"]
    assert [p[1] for p in points[:5]] == [2.0, 1.0, "NaN", "Infinity", "-Infinity"]
    assert repr(points[5][1]) == "-0.0"


@pytest.mark.parametrize("in_place", [False, True])
def test_a_script_that_is_removed_before_it_starts(product: Product, tmp_path: Path, in_place: bool):
    """Its code was kept with the run; only a run in place needs it where it was."""
    script = tmp_path / "train.py"
    script.write_text("print('hello')")
    blocker = product.launch(BROKEN, gpus_per_node=2, args=["raise"])
    run_id = product.launch(script, gpus_per_node=2, **({"workdir": str(tmp_path)} if in_place else {}))
    script.unlink()
    ended = product.wait_state(run_id)
    product.wait_state(blocker)
    if in_place:
        assert (ended["state"], ended["reason"]) == ("failed", "script missing"), ended
        assert str(script) in ended["message"]
    else:
        assert ended["state"] == "succeeded", ended


def test_a_missing_interpreter(product: Product):
    run_id = product.launch(BROKEN, gpus_per_node=1, args=["raise"], python="/nowhere/bin/python")
    ended = product.wait_state(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "script missing")
    assert "/nowhere/bin/python" in ended["message"]


@pytest.mark.parametrize("victim", ["launcher", "supervisor"])
def test_kill_9_of_the_owner_of_the_ranks_leaves_none_of_them(product: Product, victim: str, tmp_path: Path):
    script = tmp_path / "sleeping.py"
    script.write_text("import time\nwhile True:\n    time.sleep(1)\n")
    run_id = product.launch(script, gpus_per_node=2)
    product.wait_state(run_id, "running")
    ranks = product.ranks(run_id)
    launcher = ranks[0].parent()
    (launcher if victim == "launcher" else launcher.parent()).kill()
    ended = product.wait_state(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "killed"), ended
    wait_for(
        lambda: not psutil.pid_exists(ranks[0].pid) and not product.ranks(run_id), "the ranks to be gone"
    )


BAD = [
    ({"nodes": 0}, "nodes"),
    ({"gpus_per_node": -1}, "gpus_per_node"),
    ({"lr": "NaN"}, "lr"),
    ({"lr": 0}, "lr"),
    ({"epochs": 0}, "epochs"),
    ({"nodes": 4, "gpus_per_node": 2}, "nodes"),
    ({"gpus_per_node": 64}, "gpus_per_node"),
    ({"target": "no_such_recipe"}, "target"),
    ({"target": "/nowhere/train.py"}, "target"),
    ({"batchsize": 3}, "batchsize"),
]


@pytest.mark.parametrize(("wrong", "field"), BAD, ids=[str(row[0]) for row in BAD])
def test_what_cannot_be_right_is_refused_by_the_api(product: Product, wrong: dict, field: str):
    response = product.request("POST", "/api/runs", json={"target": "image_classifier"} | wrong)
    assert response.status_code == 422, response.text
    detail = response.json()["detail"]
    assert detail["field"] == field
    assert field in detail["message"] and "\n" not in detail["message"]
