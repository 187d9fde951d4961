"""Tracebacks that single processes really wrote, and the sentence each becomes."""
# ruff: noqa: E501, W291 (real outputs stand here as they were)

from __future__ import annotations

import pytest

from worker.diagnosis.causes.tracebacks import find_failure
from worker.diagnosis.diagnose import EndFacts, explain_end

CHAINED = """\
Traceback (most recent call last):
  File "/home/ana/train.py", line 24, in step
    {}["lr"]
    ~~^^^^^^
KeyError: 'lr'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/ana/train.py", line 26, in step
    raise RuntimeError("config is incomplete") from e
RuntimeError: config is incomplete
"""
SPAWNED = """\
W1121 03:36:39.751000 14451 torch/multiprocessing/spawn.py:165] Terminating process 14454 via signal SIGTERM
Traceback (most recent call last):
  File "/home/ana/train.py", line 5, in <module>
    mp.spawn(work, nprocs=2)
  File "/home/ana/.venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 211, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException: 

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/home/ana/.venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 87, in _wrap
    fn(i, *args)
  File "/home/ana/train.py", line 3, in work
    raise ValueError("in the child")
ValueError: in the child

"""
IN_A_DATA_LOADER = """\
Traceback (most recent call last):
  File "/home/ana/train.py", line 6, in main
    for x in torch.utils.data.DataLoader(D(), num_workers=1): pass
  File "/home/ana/.venv/lib/python3.11/site-packages/torch/_utils.py", line 794, in reraise
    raise exception
KeyError: Caught KeyError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/home/ana/.venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]
           ^^^^^^^^^^^^^^^^^^^^
  File "/home/ana/data.py", line 4, in __getitem__
    def __getitem__(self,i): raise KeyError("label")
                             ^^^^^^^^^^^^^^^^^^^^^^^
KeyError: 'label'

"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/home/ana/train.py", line 3, in <module>
  |     go()
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: a
    +---------------- 2 ----------------
    | TypeError: b
    +------------------------------------
"""
WRONG_KEYS = """\
Traceback (most recent call last):
  File "/home/ana/train.py", line 12, in main
    model.load_state_dict(state)
  File "/home/ana/.venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 2600, in load_state_dict
    raise RuntimeError(
RuntimeError: Error(s) in loading state_dict for Net:
\tMissing key(s) in state_dict: "fc.weight".
"""
AND_A_DESTRUCTOR = """\
Exception ignored in: <function Loader.__del__ at 0x7f0000000000>
Traceback (most recent call last):
  File "/home/ana/data.py", line 9, in __del__
    self.file.close()
AttributeError: 'Loader' object has no attribute 'file'
"""
RICH = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /home/ana/train.py:6 in main                                                 │
│                                                                              │
│ ❱  6 │   go(data, n)                                                         │
│                                                                              │
│ ╭───────── locals ─────────╮                                                 │
│ │ data = {'lr': 1}         │                                                 │
│ ╰──────────────────────────╯                                                 │
│                                                                              │
│ /home/ana/a/very/long/path/to/a/project/whose/name/does/not/fit/into/a/line/ │
│ data.py:353 in go                                                            │
│                                                                              │
│ ❱  8 │   raise ValueError(f"the picture has {n} channels and this is a long  │
│      message that goes on and on until it wraps somewhere")                  │
╰──────────────────────────────────────────────────────────────────────────────╯
ValueError: the picture has 3 channels and this is a long message that goes on 
and on until it wraps somewhere
see the log
"""
RICH_IN_ASCII = """\
+--------------------- Traceback (most recent call last) ----------------------+
| /home/ana/train.py:8 in <module>                                             |
+------------------------------------------------------------------------------+
KeyError: 'lr'
"""
LOGURU = """\
Traceback (most recent call last):

> File "/home/ana/train.py", line 9, in <module>
    main()
    └ <function main at 0x7f0000000000>

  File "/home/ana/train.py", line 5, in main
    raise ValueError("x")

ValueError: x
"""
STARTED_BY_ANOTHER = """\
Traceback (most recent call last):
  File "/home/ana/train.py", line 4, in <module>
    main()
ValueError: bad labels
Traceback (most recent call last):
  File "/home/ana/.venv/lib/python3.11/site-packages/accelerate/commands/launch.py", line 1235, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.
"""
WITH_A_NOTE = """\
Traceback (most recent call last):
  File "/home/ana/train.py", line 4, in <module>
    main()
ValueError: bad labels
while reading shard 7
"""
GROUP_OF_RAISED = """\
  + Exception Group Traceback (most recent call last):
  |   File "/home/ana/train.py", line 13, in <module>
  |     asyncio.run(main())
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/ana/data.py", line 6, in fetch
    |     raise ValueError("bad shard")
    | ValueError: bad shard
    +------------------------------------
"""
PROGRESS = "\r 10%|█         | 1/10 [00:01<00:09]\r 20%|██        | 2/10 [00:02<00:08]\n\x1b[31mdone\x1b[0m\n"


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (CHAINED, "RuntimeError: config is incomplete, train.py line 26, caused by KeyError: 'lr'"),
        (IN_A_DATA_LOADER, "KeyError: 'label', data.py line 4"),
        (
            RICH,
            "ValueError: the picture has 3 channels and this is a long message that goes on and on until it wraps "
            "somewhere, data.py line 353",
        ),
        (RICH_IN_ASCII, "KeyError: 'lr', train.py line 8"),
        (LOGURU, "ValueError: x, train.py line 5"),
        (STARTED_BY_ANOTHER, "ValueError: bad labels, train.py line 4"),
        (WITH_A_NOTE, "ValueError: bad labels, train.py line 4"),
        (
            GROUP_OF_RAISED,
            "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception), the first: ValueError: bad shard, data.py "
            "line 6",
        ),
        (GROUP, "ExceptionGroup: two (2 sub-exceptions), train.py line 3"),
        (
            WRONG_KEYS,
            'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "fc.weight", train.py '
            "line 12",
        ),
        (
            CHAINED + AND_A_DESTRUCTOR + PROGRESS,
            "RuntimeError: config is incomplete, train.py line 26, caused by KeyError: 'lr'",
        ),
        (PROGRESS + "need nothing_at_all\n", "exit code 1, no traceback; last line: need nothing_at_all"),
        (PROGRESS, "exit code 1, no traceback; last line: done"),
        ("", "exit code 1, no traceback"),
    ],
)
def test_tracebacks_of_a_single_process(stderr: str, message: str) -> None:
    facts = EndFacts(exit_code=1, node="gpu-1", launcher="python", rank_errs={0: stderr})
    assert explain_end(facts).message == f"rank 0 on gpu-1: {message}"


def test_a_message_whose_lines_announce_each_other_is_told_to_the_point():
    failure = find_failure(
        "Traceback (most recent call last):\n"
        '  File "/home/me/main.py", line 100, in main\n'
        "    data = MNIST(root)\n"
        "RuntimeError: Error downloading images.gz:\n"
        "Tried https://example.org/mnist/, got:\n"
        "<urlopen error [Errno -3] Temporary failure in name resolution>\n"
    )
    assert failure is not None
    assert failure.exception.endswith("got: <urlopen error [Errno -3] Temporary failure in name resolution>")
