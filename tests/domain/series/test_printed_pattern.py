"""Patterns of printed lines: what they read, what they refuse, and that none is slow."""

from __future__ import annotations

import math

import pytest

from domain.series.printed_pattern import (
    LONGEST_EXAMPLE,
    LONGEST_LINE,
    MOST_CHARACTERS,
    PrintedPattern,
    ReadLine,
    proposal,
)

READ = [
    ("it {step} | loss {loss} acc {acc}", "it   10 | loss 0.5  acc 71.2%", 10, {"loss": 0.5, "acc": 71.2}),
    ("it {step} loss {loss}", "  it\t1,200  loss -1.5e-3  ", 1200, {"loss": -1.5e-3}),
    ("[{step}/{*}] {loss}", "[  10/1000] 1.2k", 10, {"loss": 1200.0}),
    ("loss:{loss} t {time}", "loss:  nan t 95ms", None, {"time_s": 0.095}),
    ("t {time}ms m {mem} GiB", "t 95ms m 3.5 GiB", None, {"time": 95.0, "mem": 3.5}),
    ("m {mem}", "m 2GiB", None, {"mem_bytes": 2.0 * 1024**3}),
    ("{} loss {val/loss} {*}", "anything at all loss 0.25 and more", None, {"val/loss": 0.25}),
    ("{*}{loss}{*}", "now it is 0.75!", None, {"loss": 0.75}),
    ("{{'loss': {loss}}}", "{'loss': 0.5}", None, {"loss": 0.5}),
    ("now (loss) [{loss}] a+b* {x}", "now (loss) [1] a+b* 2", None, {"loss": 1.0, "x": 2.0}),
    ("loss {loss}", "2026-01-02 03:04:05,678 INFO loss 0.5", None, {"loss": 0.5}),
    ("{*} INFO loss {loss}", "2026-01-02 03:04:05,678 INFO loss 0.5", None, {"loss": 0.5}),
    ("loss {loss}", "\x1b[32mloss\x1b[0m 0.5", None, {"loss": 0.5}),
]


@pytest.mark.parametrize(("pattern", "line", "step", "values"), READ)
def test_a_line_is_read(pattern: str, line: str, step: int | None, values: dict[str, float]) -> None:
    read = PrintedPattern(pattern).read(line)
    assert read is not None and read.step == step
    assert {name: value for name, value in read.values.items() if not math.isnan(value)} == values


def test_an_epoch_may_be_a_fraction() -> None:
    assert PrintedPattern("e {epoch} l {l}").read("e 0.5 l 1") == ReadLine(None, 0.5, True, {"l": 1.0})
    assert PrintedPattern("e {epoch} l {l}").read("e 2 l 1") == ReadLine(None, 2.0, False, {"l": 1.0})


@pytest.mark.parametrize(
    "line",
    ["it 1 loss", "it 1.5 loss 2", "it 1 loss 2 more", "say it 1 loss 2", "it 1 loss x", f"it {'1' * 16} loss 2", ""],
)  # fmt: skip
def test_another_line_is_not_read(line: str) -> None:
    assert PrintedPattern("it {step} loss {loss}").read(line) is None


def test_only_a_pattern_without_step_and_epoch_is_counted() -> None:
    patterns = ("a {a}", "s {step} a {a}", "e {epoch} a {a}")
    assert [PrintedPattern(text).is_counted for text in patterns] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "at least one value"),
        ("step {step}", "at least one value"),
        ("loss {loss", "close each brace"),
        ("loss }", "close each brace"),
        ("{loss} {loss}", "once"),
        ("{loss}{acc}", "text between"),
        ("1{loss}", "no digit directly beside {loss}"),
        ("{loss}0", "no digit directly beside {loss}"),
        ("{a b}", "names of letters"),
        ("{(?:a+)+}", "names of letters"),
        ("{a}" + "x" * MOST_CHARACTERS, "at most 500"),
    ],
)
def test_a_wrong_pattern_says_its_rule(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        PrintedPattern(text)


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("now loss: 0.5 acc: 75%", "now loss: {loss} acc: {acc}"),
        ("it 10/1000 loss=2.31 in 95ms", "it {step}/{*} loss={loss} in {*}"),
        ("Epoch 2: {'loss': 0.5} 7 resnet50", "Epoch {epoch}: {{'loss': {loss}}} {*} resnet50"),
        ("loss 1.0 loss 2.0", "loss {loss} loss {*}"),
        ("step 1.5 loss 2", "step {*} loss {loss}"),
        (
            "5 - 56.1 sent/s - 2143.8 words/s - MLM-en:     0.5",
            "{step} - {sent/s} sent/s - {words/s} words/s - MLM-en:     {MLM-en}",
        ),
        ("acc - 3 | loss =    0.5", "acc - {*} | loss =    {loss}"),
    ],
)
def test_a_pattern_is_proposed_that_reads_its_line(line: str, pattern: str) -> None:
    assert proposal(line) == pattern
    assert PrintedPattern(pattern).read(line) is not None


def test_a_line_that_was_cut_is_proposed_with_anything_behind() -> None:
    line = "loss 0.5 " + "abcdefg " * 60
    pattern = PrintedPattern(proposal(line[:LONGEST_EXAMPLE]))
    assert pattern.read(line) == ReadLine(None, None, False, {"loss": 0.5})


HOSTILE = [
    ("{*}a" * 120 + "{x}", "a" * LONGEST_LINE),
    ("{*} {a}" * 40 + "x", "1 " * (LONGEST_LINE // 2)),
    (",".join(f"{{n{i}}}" for i in range(80)), ",".join(["111"] * 1024)),
    ("a" * 490 + "{x}{*}b", "a" * LONGEST_LINE),
    ("{*}{a}x", "1" * LONGEST_LINE),
    ("{*}{a}x", "1," * (LONGEST_LINE // 2)),
    ("{*}" + "(.*)*+" * 60 + "{a}", "(.*)*+" * 600),
    ("{*}.{a}x", "." * LONGEST_LINE),
    ("{*}-{a}x", "-" * LONGEST_LINE),
    ("a{a} " * 1, " " * LONGEST_LINE),
]


@pytest.mark.parametrize(("pattern", "line"), HOSTILE)
def test_no_pattern_tries_all_ways_to_fit(pattern: str, line: str) -> None:
    names = iter(range(1000))
    while "{a}" in pattern:
        pattern = pattern.replace("{a}", f"{{v{next(names)}}}", 1)
    # One that tries all ways to share a line among its names would not return in years.
    assert PrintedPattern(pattern).read(line) is None
