"""A batch size or rate is read from a script's text only where it can be nothing else."""

from __future__ import annotations

import pytest

from dashboard.script_reader.reading import constants_in
from tests.dashboard.script_reader.programs import program_in

IMPORTS = "import torch\nfrom torch import optim\nfrom torch.utils.data import DataLoader\n"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("DataLoader(data, batch_size=32)\ntorch.optim.AdamW(p, lr=1e-3)", {"batch_size": 32, "lr": 1e-3}),
        ("BATCH = 8 * 4\nDataLoader(data, batch_size=BATCH)", {"batch_size": 32}),
        ("def main():\n    torch.utils.data.DataLoader(data, batch_size=16)\nmain()", {"batch_size": 16}),
        ("DataLoader(a, batch_size=32)\nDataLoader(b, batch_size=32)", {"batch_size": 32}),
        ("optim.SGD(p, lr=0.1)\noptim.lr_scheduler.StepLR(o, step_size=3)", {"lr": 0.1}),
        ("DataLoader(a, batch_size=32)\nDataLoader(b, batch_size=64)", {}),
        ("DataLoader(a, batch_size=32)\nDataLoader(b)", {}),
        ("B = 8\nif big: B = 16\nDataLoader(a, batch_size=B)", {}),
        ("B = 8\ndef load(B): return DataLoader(a, batch_size=B)", {}),
        ("DataLoader(a, batch_size=args.batch)\noptim.SGD(p, lr=args.lr)", {}),
        ("optim.SGD(p, 0.1)", {}),
        ("class DataLoader: ...\nother.DataLoader(a, batch_size=32)", {}),
    ],
)
def test_only_what_is_certain_is_read(text: str, known: dict[str, float]) -> None:
    assert constants_in(program_in(IMPORTS + text)) == known
