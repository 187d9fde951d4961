"""A shell script is refused with the command that launches what it starts."""

from __future__ import annotations

import pytest

from dashboard.snapshots.code_packing import python_problem
from dashboard.snapshots.git_address import CodeRefused


def refused(text: str, field: str = "target", name: str = "run.sh") -> str:
    with pytest.raises(CodeRefused) as error:
        python_problem(name, text.encode(), field)
    return str(error.value)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("torchrun --standalone --nproc_per_node=2 inner.py --lr 0.01", "inner.py --gpus-per-node 2 -- --lr 0.01"),
        ('"$PY" -m torch.distributed.run --nproc-per-node 4 a/b.py', "a/b.py --gpus-per-node 4"),
        ("CUDA_VISIBLE_DEVICES=0,1 python3 -u train.py 2>&1 | tee log", "train.py --launcher python"),
        (
            "nohup accelerate launch --num_processes 8 \\\n  train.py \\\n  --name 'a b' > out &",
            "train.py --gpus-per-node 8 -- --name 'a b'",
        ),
        ("cd x && exec torchrun --nproc_per_node=$N -m pkg.train x", ". --module pkg.train -- x"),
        ('/opt/env/bin/torchrun train.py --lr "$LR"', 'train.py -- --lr "$LR"'),
        ("deepspeed --num_gpus 2 x.py --api-key=abcdef123456789", "x.py --gpus-per-node 2 -- '--api-key=********'"),
    ],
)  # fmt: skip
def test_the_command_of_what_it_starts_is_named_with_its_line(line: str, command: str) -> None:
    sentence = refused(f"#!/bin/bash\nset -e\n{line}\n")
    assert "run.sh is not a Python script: its first line names bash." in sentence
    assert f"Launch what its line 3 starts: `rankzero launch {command}`." in sentence


def test_as_an_entry_the_options_are_named_and_exported_variables_kept() -> None:
    text = "export OMP_NUM_THREADS=1\nexport PATH=/x:$PATH\nexport WORLD_SIZE=2\ntorchrun train.py\n"
    sentence = refused(text, "entry", "start.sh")
    assert "it is one of a shell" in sentence
    assert "Launch what its line 4 starts: `--entry train.py --env OMP_NUM_THREADS=1`." in sentence


@pytest.mark.parametrize("text", ["#!/bin/sh\necho hi", "#!/bin/bash\npython -c 'x", "#!/bin/bash\npip install x"])
def test_where_nothing_is_seen_the_way_is_named(text: str) -> None:
    assert "Launch the Python file that it starts" in refused(text)


def test_another_language_is_only_named() -> None:
    assert refused("#!/usr/bin/env perl\nprint 1").endswith("its first line names perl.")
