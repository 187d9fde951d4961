"""Runs that fail, and what the product says of them."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.end_to_end.product import Product

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
PLACES = {
    "raise": "the picture has 3 channels", "import": "import a_module_nobody_has", "garbage": "after the garbage",
    "memory": "bytearray(2**40)", "file": 'with open("data', "print": 'KeyError("label")', "port": "init_method=",
    "peer": 'raise ValueError("bad labels")', "wait": "dist.all_reduce", "spawn": 'raise ValueError("bad labels")',
}  # fmt: skip


def line_of(how: str) -> int | None:
    """Where it happens in the script."""
    lines = enumerate(BROKEN.read_text().splitlines(), 1)
    places = [number for number, line in lines if how in PLACES and PLACES[how] in line]
    return None if not places else places[0] if how == "peer" else places[-1]


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
    for finding in product.get(f"/api/runs/{run_id}/findings"):
        if finding["kind"] == "collectives differ":  # the report of the end begins with it
            sentence, next_step = f"{finding['evidence']} {sentence}", finding["fix"]
    explained = ended["state"], ended["reason"], ended["message"]
    assert explained == ("failed", reason, sentence), explained
    assert ended["next_step"] == next_step
    assert not product.ranks(run_id)
