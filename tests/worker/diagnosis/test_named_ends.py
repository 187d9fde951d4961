"""Ends that people caused without an error of their own: each is named, with the next step."""

from __future__ import annotations

import pytest

from domain.messages import Reason
from tests.worker.diagnosis.failures import PEER_GONE, failure, raised, torchrun
from worker.diagnosis.causes.files import Workplace
from worker.diagnosis.causes.interfaces import Interfaces, missing_interface
from worker.diagnosis.causes.lookup import explain
from worker.diagnosis.causes.reruns import Rerun, find_rerun
from worker.diagnosis.causes.tracebacks import find_failure
from worker.diagnosis.diagnose import EndFacts, explain_end
from worker.diagnosis.rank_ends import ranks_left_early

GLOO = (
    "RuntimeError: [enforce fail at /w/gloo/transport/tcp/device.cc:84] ifa != nullptr. "
    "Unable to find address for: {name}"
)


@pytest.mark.parametrize(
    ("variable", "value", "text", "sentence", "step"),
    [
        (
            "GLOO_SOCKET_IFNAME", "bond7", GLOO.format(name="bond7"),
            "the network interface bond7, set by GLOO_SOCKET_IFNAME of this run, does not exist on node n1; "
            "it has lo, eth0",
            "--env GLOO_SOCKET_IFNAME=NAME",
        ),
        (
            "GLOO_SOCKET_IFNAME", "^lo,docker", GLOO.format(name="^lo"),
            "gloo knows no exclusion list: GLOO_SOCKET_IFNAME=^lo,docker of this run is read as the name ^lo, "
            "which node n1 does not have; it has lo, eth0",
            "--env GLOO_SOCKET_IFNAME=NAME",
        ),
        (
            "NCCL_SOCKET_IFNAME", "ib9",
            "torch.distributed.DistBackendError: ncclInvalidUsage: Bootstrap : no socket interface found",
            "no network interface of node n1 matches NCCL_SOCKET_IFNAME=ib9 of this run; it has lo, eth0",
            "--env NCCL_SOCKET_IFNAME=NAME",
        ),
    ],
)  # fmt: skip
def test_an_interface_that_the_node_does_not_have(variable, value, text, sentence, step) -> None:
    says, next_step = missing_interface(text, "n1", Interfaces(["lo", "eth0"], {variable: value}))
    assert (says, step in next_step) == (sentence, True)


QUESTIONS = {
    "input": (
        "train.py",
        "prepare",
        "EOFError: EOF when reading a line",
        "asks for input on its standard input",
    ),
    "getpass": ("/usr/lib/python3.11/getpass.py", "_raw_input", "EOFError", "asks for a password"),
    "breakpoint": ("/usr/lib/python3.11/bdb.py", "dispatch_line", "bdb.BdbQuit", "stops at a breakpoint"),
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_question_that_nobody_can_answer(kind) -> None:
    file, function, error, sentence = QUESTIONS[kind]
    text = 'Traceback (most recent call last):\n  File "/home/ana/train.py", line 7, in prepare\n    ask()\n'
    text += f'  File "{file}", line 9, in {function}\n    read()\n{error}\n'
    explanation = explain(find_failure(text), "n1", Workplace())
    assert sentence in explanation.says
    assert explanation.next_step
    assert "which a launched run does not have" in explanation.says


def test_an_end_of_a_file_is_no_question() -> None:
    text = 'Traceback (most recent call last):\n  File "/home/ana/train.py", line 7, in load\n    go()\nEOFError\n'
    assert explain(find_failure(text), "n1", Workplace()).says == "EOFError, train.py line 7"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Terminated. ",
            "a data loader's process (pid 77) was ended by a signal from outside (Terminated), train.py line 7",
        ),
        (
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ",
            "a data loader's process (pid 77) was killed (SIGKILL); the kernel does this when memory runs out, "
            "train.py line 7",
        ),
        (
            "subprocess.CalledProcessError: Command '['ffmpeg', 'a']' died with <Signals.SIGKILL: 9>.",
            "a program that the script started was killed (SIGKILL): '['ffmpeg', 'a']'; the kernel does this when "
            "memory runs out, train.py line 7",
        ),
    ],
)
def test_a_helper_process_that_was_ended(error, sentence) -> None:
    text = f'Traceback (most recent call last):\n  File "/home/ana/train.py", line 7, in load\n    go()\n{error}\n'
    explanation = explain(find_failure(text), "n1", Workplace())
    assert explanation.says == sentence
    assert explanation.next_step


def test_a_rank_that_leaves_early_is_named_and_the_others_error_is_a_consequence() -> None:
    report = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    report += f"Failures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n{failure(0, 0, 1)}"
    facts = EndFacts(
        exit_code=1, node="n1", launcher_err=report, rank_errs={0: PEER_GONE, 1: ""},
        rank_outs={0: "step 20: loss 0.3\n", 1: "step 20: loss 0.3\nno improvement for 5 epochs: stop\n"},
        left_early=(1,),
    )  # fmt: skip
    verdict = explain_end(facts)
    assert (verdict.state, verdict.reason) == ("failed", Reason.SCRIPT_ERROR)
    assert verdict.message == (
        "rank 1 on n1 ended by itself with exit code 0 after step 20 while rank 0 continued; its connection error is a "
        "consequence; its last line: no improvement for 5 epochs: stop"
    )
    assert (verdict.error.rank, verdict.error.exit_code) == (1, 0)


def test_a_rank_that_torchrun_had_to_end_did_not_leave() -> None:
    closing = "Sending process 12 closing signal SIGTERM\n"
    assert ranks_left_early({0: 10, 1: 11, 2: 12}, closing, {0}) == (1,)


def ended_after_signal(out: str, ended_at: float = 110.0):
    facts = EndFacts(exit_code=0, node="n1", rank_outs={0: out}, terminated_at=100.0, ended_at=ended_at)
    return explain_end(facts)


def test_a_clean_exit_after_sigterm_from_outside_is_no_success() -> None:
    verdict = ended_after_signal("step 55/400: loss 0.1\ngot signal 15\nstep 56/400: loss 0.1\n")
    assert (verdict.state, verdict.message) == (
        "stopped",
        "The processes on n1 got SIGTERM from outside (nobody stopped the run here), and ended with exit code 0 at "
        "step 56 of 400.",
    )
    assert "resume the run" in verdict.next_step


def test_a_signal_that_did_not_end_the_training_is_none() -> None:
    assert ended_after_signal("step 399/400: loss 0.1\n").state == "succeeded"
    assert ended_after_signal("loss 0.1\n", ended_at=900.0).state == "succeeded"
    assert ended_after_signal("loss 0.1\n").state == "stopped"


RERUN = Rerun("/home/ana/train.py", 2, "init_process_group", has_guard=False)
LOST_CHILDREN = (
    "RuntimeError: DataLoader worker (pid(s) 12211) exited unexpectedly",
    "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with exit code 1",
    "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly",
    "EOFError",
    "_queue.Empty",
)
REFUSED = """\
Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main
    exitcode = _main(fd, parent_sentinel)
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 297, in _fixup_main_from_path
    main_content = runpy.run_path(main_path,
  File "<frozen runpy>", line 291, in run_path
  File "/home/ana/train.py", line 14, in <module>
    for x in loader:
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 140, in _check_not_importing_main
    raise RuntimeError('''
RuntimeError:
        An attempt has been made to start a new process before the
        current process has finished its bootstrapping phase.

        This probably means that you are not using fork to start your
"""


@pytest.mark.parametrize("exception", LOST_CHILDREN)
def test_a_script_that_runs_again_is_named_before_the_error_that_follows(exception: str) -> None:
    facts = ended_with(raised(0, "for x in loader:", exception), rerun=RERUN)
    verdict = explain_end(facts)
    assert verdict.message is not None and verdict.message.startswith(
        "rank 0 on n1: the script runs again in every process that it starts, because it has no "
        '`if __name__ == "__main__":` (train.py line 2: the process joins the process group again); then '
    )
    assert verdict.reason is Reason.SCRIPT_ERROR and verdict.error is not None and not verdict.error.is_consequence
    assert verdict.next_step == RERUN.fix and "move below it line 2" in RERUN.fix


def test_a_lost_peer_follows_from_it_too() -> None:
    assert "runs again" in (explain_end(ended_with(PEER_GONE, rerun=RERUN)).message or "")


@pytest.mark.parametrize("exception", ["KeyError: 'lr'", "torch.OutOfMemoryError: CUDA out of memory."])
def test_an_error_of_its_own_stays_the_cause(exception: str) -> None:
    assert "runs again" not in (explain_end(ended_with(raised(0, "step()", exception), rerun=RERUN)).message or "")


def test_without_the_probe_the_process_own_traceback_shows_it() -> None:
    rerun = find_rerun(REFUSED + raised(0, "for x in loader:", LOST_CHILDREN[0]), 0)
    assert rerun is not None and rerun.is_certain
    assert (rerun.file, rerun.line) == ("/home/ana/train.py", 14)
    assert "because line 14 is not below" in rerun.sentence and "may not start further ones" in rerun.sentence
    assert find_rerun(raised(0, "for x in loader:", LOST_CHILDREN[0]), 0) is None


IMPORTED = REFUSED.replace(
    """line 14, in <module>
    for x in loader:
""",
    """line 3, in <module>
    from lib import mean
  File "<frozen importlib._bootstrap>", line 1176, in _find_and_load
  File "/home/ana/lib.py", line 5, in <module>
    mean = sum(x.mean() for x in loader)
  File "/home/ana/lib.py", line 5, in <genexpr>
    mean = sum(x.mean() for x in loader)
""",
)


def test_a_module_that_starts_processes_when_it_is_imported_is_the_one_to_change() -> None:
    rerun = find_rerun(IMPORTED, 0)
    assert rerun is not None and rerun.is_certain
    assert (rerun.file, rerun.line, rerun.imported) == ("/home/ana/train.py", 3, ("/home/ana/lib.py", 5))
    assert "because train.py line 3 imports what starts processes or trains (lib.py line 5: " in rerun.sentence
    assert rerun.fix.startswith("Move line 5 of lib.py and all else there ")
    assert rerun.fix.endswith('call it in train.py below the line `if __name__ == "__main__":`.')


def ended_with(err: str, rerun: Rerun | None) -> EndFacts:
    """The end of a run whose rank 0 left this on its standard error."""
    return EndFacts(
        exit_code=1, launcher_err=torchrun((0, 1, "")), rank_errs={0: err}, node="n1", world_size=1, rerun=rerun
    )
