"""Numbers that no rule reads are noticed, also beside others; settings and what repeats unchanged are not."""

from __future__ import annotations

import pytest

from worker.streams.printed import PrintedLines


def unread(text: str) -> tuple[int, str]:
    lines = PrintedLines()
    lines.feed(text.encode(), 0.0, final=True)
    return lines.unread.repeated, lines.unread.example


@pytest.mark.parametrize(
    "line",
    [
        "INFO - 01/02/26 03:04:05 - 0:11:11 -  {n} - 56.1{n} sent/s - MLM-en: 8.{n} - model LR: 3.8e-06",
        "now loss: 0.{n} acc: 0.75",
        "the loss of this round is 0.{n}, well done",
        "time (ms) | forward: 659.8{n} | backward: 2164.69",
        "{n} 0.5{n} 0.75 0.125",
        "{n},0.5{n},0.75",
        "|  {n} | 0.5{n} | 0.75 |",
        "step {n}: loss 0.5{n} α*: 0.25",
        "step {n}: loss 0.5{n} acc:0.5{n}lr:0.1",
        "step {n}: loss 0.5{n} loss 0.6{n}",
        "step {n}: loss=0.5{n} lr=[0.1, 0.2] memory=3028 α*=0.2{n}",
        "{{'loss': 0.5{n}, 'train': {{'acc': 0.5}}, 'val': {{'acc': 0.4}}, 'step': {n}}}",
    ],
)
def test_values_without_a_rule_are_noticed_where_they_come_again(line: str) -> None:
    lines = [line.format(n=n) for n in range(1, 5)]
    assert unread("step 1 loss 2.0\n" + "\n".join(lines) + "\n")[0] == 4
    assert unread("\n".join(lines[:2]) + "\n")[0] == 0


@pytest.mark.parametrize(
    "line",
    [
        "step {n}: loss 0.5{n}, eta 0:12:3{n}, 10.{n} it/s",
        "  (drop{n}): Dropout(p=0.1, inplace=False)",
        "  (ln_{n}): LayerNorm((768,), eps=1e-05, elementwise_affine=True)",
        "Downloading: {n}5%|████▌     | 450M/1.00G [00:1{n}<00:12, 45.{n}MB/s]",
        "  {n}%|▌         | {n}/1000 [00:10<03:10,  5.0{n}it/s]",
        "saved out/step={n}-loss=2.3{n}.ckpt",
        "2026-01-02 03:04:05.67{n} INFO connected to 10.0.0.{n}:29500, torch 2.4.{n}",
        "RuntimeError: loss=0.{n}",
        "[W1129 02:51:4{n}.292157063 socket.cpp:207] [c10d] The hostname of the client socket is unknown. err=-3",
    ],
)
def test_what_is_read_or_no_value_is_not_noticed(line: str) -> None:
    assert unread("\n".join(line.format(n=n) for n in range(1, 6)) + "\n") == (0, "")


def test_settings_are_not_noticed() -> None:
    settings = "lr: 0.1\nweight decay: 0.01\nmomentum: 0.9\nclip: 1.5\ndropout: 0.2\nloss weight: 0.25\n"
    assert unread(settings)[0] == 0


def test_the_example_is_a_line_that_comes_again() -> None:
    text = "best loss so far: 0.125 !\n" + "".join(f"round with loss: 0.{n} ok\n" for n in range(5))
    assert unread(text) == (5, "round with loss: 0.2 ok")
