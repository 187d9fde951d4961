"""Recognise a script that asks a person something: a launched run has nobody at its standard input. Pure."""

from __future__ import annotations

from worker.diagnosis.tracebacks.exceptions import PythonFailure

_GETPASS = frozenset({"getpass", "unix_getpass", "fallback_getpass", "_raw_input"})
_NOBODY = "which a launched run does not have"
_ANSWER = (
    "Let the script take the answer from an argument or a variable (--env), or use a default where "
    "sys.stdin.isatty() is False."
)
_BREAKPOINT = "Remove the breakpoint, or switch it off with --env PYTHONBREAKPOINT=0; debug the script in a terminal."


def question(failure: PythonFailure) -> tuple[str, str] | None:
    """Return the sentence and the next step if the script waited for a person's answer."""
    kind = failure.exception.partition(":")[0].rpartition(".")[2]
    if kind == "BdbQuit":
        says = f"the script stops at a breakpoint{failure.place}: a debugger needs a standard input, {_NOBODY}"
        return says, _BREAKPOINT
    if kind == "EOFError" and not _GETPASS.isdisjoint(failure.functions):
        return f"the script asks for a password on its standard input, {_NOBODY}{failure.place}", _ANSWER
    if kind == "EOFError" and "EOF when reading a line" in failure.exception:
        return f"the script asks for input on its standard input, {_NOBODY}{failure.place}", _ANSWER
    return None
