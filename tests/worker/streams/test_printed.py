"""What scripts print becomes series; what only looks like numbers does not."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from tests.worker.streams.printed_series import bar, series_of, told_by
from worker.streams.printed import EPOCH_TAG, MAX_TAGS, PrintedLines


# -- epochs ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "epochs"),
    [
        ("Epoch: [1][20/391]\tLoss 2.0 (2.1)\tlr 0.1\n", [(20, 1.0)]),
        ("Epoch: [0][1/2] Loss 2\nEpoch: [0][2/2] Loss 2\nEpoch: [1][1/2] Loss 2\n", [(1, 0.0), (3, 1.0)]),
        ("Epoch 1/2\n100/200 [======>.......] - ETA: 3s - loss: 0.5\n", [(100, 1.0)]),
        ("step 10/100 | epoch 1.25 | loss 2.3 | lr 1.00e-01\n", [(10, 1.25)]),
        ("{'loss': 2.3, 'learning_rate': 5e-05, 'epoch': 0.1}\n", [(100, 0.1)]),
        ("Epoch 2/5 - loss: 0.2\nEpoch 3 [val] loss=0.5\n", [(2, 2.0)]),
        ("step 10: loss 2.3\n", None),
        ("epoch=10 lr=0.1 batch_size=32 momentum=0.9\n", None),
    ],
)
def test_the_epoch_is_told_once_as_it_is_printed(text: str, epochs: list[tuple[int, float]] | None) -> None:
    assert told_by(text).get(EPOCH_TAG) == epochs


# -- steps over epochs -------------------------------------------------------------------------
def test_steps_of_an_epoch_become_steps_of_the_training() -> None:
    text = "".join(
        f"Epoch: [{epoch}][{step:3}/391]\tLoss {epoch + step / 1000:.4f} (2.0)\n"
        for epoch in range(3)
        for step in range(0, 391, 100)
    )
    steps = [step for step, _ in series_of(text)["loss"]]
    assert steps == [epoch * 391 + step for epoch in range(3) for step in range(0, 391, 100)]


def test_a_training_that_goes_on_at_epoch_5_begins_behind_five_epochs() -> None:
    assert series_of("Epoch: [5][20/391] Loss 2.0 (2.0)\n")["loss"] == [(5 * 391 + 20, 2.0)]
    assert series_of("Epoch [5/10], Step [100/600], Loss: 0.5\n")["loss"] == [(4 * 600 + 100, 0.5)]
    assert series_of("epoch 5/10 step 100/600 loss 0.5\n")["loss"] == [(4 * 600 + 100, 0.5)]


def test_steps_that_go_on_over_epochs_stay_as_they_are() -> None:
    text = "".join(f"epoch {step // 100}/10 step {step}/1000 loss 0.5\n" for step in range(0, 1000, 50))
    assert [step for step, _ in series_of(text)["loss"]] == list(range(0, 1000, 50))


def test_without_a_known_length_an_epoch_is_as_long_as_was_seen() -> None:
    text = "".join(f"epoch {epoch} step {step} loss 0.5\n" for epoch in range(3) for step in (0, 100, 200))
    assert [step for step, _ in series_of(text)["loss"]] == [0, 100, 200, 300, 400, 500, 600, 700, 800]
    cifar = "".join(f"[{epoch}, {step:5}] loss: 2.1\n" for epoch in (1, 2) for step in (2000, 4000))
    assert [step for step, _ in series_of(cifar)["loss"]] == [2000, 4000, 6000, 8000]


def test_samples_of_mnist_go_on_over_epochs() -> None:
    text = "".join(f"Train Epoch: {epoch} [{n}/60000 ({n // 600}%)]\tLoss: 0.5\n" for epoch in (1, 2) for n in (0, 640))
    assert [step for step, _ in series_of(text)["train/loss"]] == [0, 640, 60000, 60640]


def test_values_of_an_epoch_line_stand_at_its_last_step() -> None:
    text = "Epoch: [0][390/391] Loss 2.0 (2.0)\nEpoch 0 done: val_loss 1.5\nEpoch: [1][390/391] Loss 1.9 (2.0)\n"
    assert series_of(text) == {"loss": [(390, 2.0), (781, 1.9)], "val/loss": [(390, 1.5)]}


def test_an_epoch_may_be_announced_by_a_line_of_its_own() -> None:
    keras = (
        "Epoch 1/2\n100/200 [======>.......] - ETA: 3s - loss: 0.5\n"
        "200/200 [==============] - 12s 30ms/step - loss: 0.4 - val_loss: 0.6\n"
        "Epoch 2/2\n\x1b[1m 100/200\x1b[0m \x1b[32m━━━━━━━━━━\x1b[0m 1s 9ms/step - accuracy: 0.9 - loss: 0.3\n"
    )
    series_read = series_of(keras)
    assert series_read["loss"] == [(100, 0.5), (200, 0.4), (300, 0.3)]
    assert series_read["val/loss"] == [(200, 0.6)]
    quickstart = (
        "Epoch 1\n-------------------------------\nloss: 2.303494  [   64/60000]\nloss: 2.29  [ 6464/60000]\n"
        "Test Error: \n Accuracy: 44.3%, Avg loss: 2.15\n\nEpoch 2\n-----\nloss: 2.1  [   64/60000]\n"
    )
    assert series_of(quickstart) == {"loss": [(64, 2.303494), (6464, 2.29), (60064, 2.1)]}


def test_a_bar_counts_when_it_is_overwritten() -> None:
    lines = PrintedLines()
    first, second = bar(1, 100, "loss=2.5").encode(), bar(2, 100, "loss=2.4").encode()
    used, series = lines.feed(first, 0.0)
    assert (used, series) == (1, {})
    used, series = lines.feed(first[used:] + second, 7.0)
    assert series == {"loss": [(1, 2.5, 7.0)], "it_per_s": [(1, 10.0, 7.0)]}
    assert used == len(first)


def test_the_last_picture_of_a_bar_counts_also_while_it_is_not_finished() -> None:
    text = bar(3, 18, "v_num=0, train_loss=9.0", "Epoch 0: ") + bar(4, 18, "v_num=0, train_loss=9.0", "Epoch 0: ")
    _, series = PrintedLines().feed((text + bar(4, 18, "v_num=0, train_loss=8.5", "Epoch 0: ")).encode(), 0.0)
    assert series["train/loss"] == [(3, 9.0, 0.0)]


def test_lightnings_bar_is_read_over_epochs_and_validation_counts_once() -> None:
    text = "\rTraining: |          | 0/? [00:00<?, ?it/s]"
    for epoch in (0, 1):
        for step in (1, 2):
            loss = f"v_num=0, train_loss={2 - epoch - step / 10:.3f}" + (", val_loss=0.500" if epoch else "")
            stale = "v_num=0, train_loss=9.990" if step == 1 else loss
            text += bar(step, 2, stale, f"Epoch {epoch}: ") + bar(step, 2, loss, f"Epoch {epoch}: ")
        text += "\n\rValidation DataLoader 0:  45%|████▌     | 9/20 [00:01<00:01,  7.12it/s]\x1b[A"
    series_read = series_of(text + "\n")
    assert series_read["train/loss"] == [(1, 1.9), (2, 1.8), (3, 0.9), (4, 0.8)]
    assert series_read["val/loss"] == [(3, 0.5)]


def test_a_bar_that_begins_again_is_the_next_epoch() -> None:
    text = "".join(bar(step, 10, "loss=1.0") for _ in range(3) for step in (5, 10)) + "\n"
    assert [step for step, _ in series_of(text)["loss"]] == [5, 10, 15, 20, 25, 30]


def test_bars_of_training_and_validation_are_kept_apart() -> None:
    text = "".join(
        bar(10, 10, "loss=1.0", f"Epoch {epoch} [train]: ") + bar(4, 4, "loss=2.0", f"Epoch {epoch} [val]: ")
        for epoch in (1, 2)
    )
    series_read = series_of(text + "\n")
    assert series_read["train/loss"] == [(10, 1.0), (20, 1.0)]
    assert [value for _, value in series_read["val/loss"]] == [2.0]


def test_a_slow_bar_tells_its_rate_per_second() -> None:
    text = "  1%|          | 1/100 [00:04<06:00,  4.00s/it, loss=2.0]\n 120it [00:10, 12.0it/s, loss=1.0]\n"
    assert series_of(text)["it_per_s"] == [(1, 0.25), (120, 12.0)]


# -- whole outputs -----------------------------------------------------------------------------
NANOGPT = """\
Overriding config with config/train_shakespeare_char.py:
out_dir = 'out-shakespeare-char'
eval_interval = 250 # keep frequent because we'll overfit
learning_rate = 1e-3 # with baby networks can afford to go a bit higher
tokens per iteration will be: 16,384
found vocab_size = 65 (inside data/shakespeare_char/meta.pkl)
Initializing a new model from scratch
number of parameters: 10.65M
num decayed parameter tensors: 26, with 10,740,096 parameters
using fused AdamW: True
compiling the model... (takes a ~minute)
step 0: train loss 4.2874, val loss 4.2823
iter 0: loss 4.2664, time 26415.23ms, mfu -100.00%
iter 10: loss 3.2435, time 23.87ms, mfu 15.61%
step 250: train loss 1.9654, val loss 2.0612
saving checkpoint to out-shakespeare-char
iter 250: loss 2.0435, time 3123.87ms, mfu 14.10%
"""


def test_the_output_of_nanogpt() -> None:
    series_read = series_of(NANOGPT)
    assert series_read["loss"] == [(0, 4.2664), (10, 3.2435), (250, 2.0435)]
    assert series_read["train/loss"] == [(0, 4.2874), (250, 1.9654)]
    assert series_read["val/loss"] == [(0, 4.2823), (250, 2.0612)]
    assert set(series_read) == {"loss", "train/loss", "val/loss", "time_s", "mfu"}


HF_OUT = """\
{'loss': '1.653', 'grad_norm': '2.5', 'learning_rate': '1.39e-05', 'epoch': '0.5'}
{'eval_loss': '1.249', 'eval_runtime': '49.19', 'eval_samples_per_second': '119.4', 'epoch': '0.5'}
{'loss': '1.5', 'grad_norm': '2.0', 'learning_rate': '1.0e-05', 'epoch': '1'}
{'train_runtime': '12.3', 'train_samples_per_second': '97', 'train_loss': '1.57', 'epoch': '1'}
"""


def test_the_output_of_hf_trainer_has_epochs_for_steps() -> None:
    series_read = series_of(HF_OUT)
    assert series_read["loss"] == [(500, 1.653), (1000, 1.5)]
    assert series_read["eval/loss"] == [(500, 1.249)]
    bars = "".join(f"\r{n:3}%|██        | {n}/100 [00:10<01:30,  5.00it/s]" for n in range(0, 100, 10))
    assert series_of(bars + "\n") == {}


# -- bytes -------------------------------------------------------------------------------------
def test_any_cut_of_the_bytes_gives_the_same_points() -> None:
    data = (NANOGPT + bar(1, 9, "loss=1.0") + bar(2, 9, "loss=0.5") + "\r\nEpoch 3: loss é 1\n").encode()
    whole = PrintedLines().feed(data, 0.0)[1]
    for size in (1, 7, 64, 500):
        lines, series_read, at, seen = PrintedLines(), {}, 0, 0
        while seen < len(data):
            seen = min(len(data), seen + size)
            used, series = lines.feed(data[at:seen], 0.0)
            at += used
            for tag, points in series.items():
                series_read.setdefault(tag, []).extend(points)
        assert series_read == whole and at == len(data), size


def test_a_last_line_without_its_end_is_read_when_nothing_follows() -> None:
    lines = PrintedLines()
    assert lines.feed(b"step 1 loss 2.0", 0.0) == (0, {})
    assert lines.feed(b"step 1 loss 2.0", 3.0, final=True) == (15, {"loss": [(1, 2.0, 3.0)]})


def test_an_endless_line_is_stepped_over_in_little_memory() -> None:
    lines, piece = PrintedLines(), b"step 1 loss 2.0 " * 8192
    tracemalloc.start()
    for _ in range(100):
        assert lines.feed(piece, 0.0) == (len(piece), {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert lines.feed(b"step 2 loss 1.0\nstep 3 loss 0.5\n", 0.0)[1] == {"loss": [(3, 0.5, 0.0)]}


@pytest.mark.parametrize("size_bytes", [2**30, 256 * 1024, 70_000])
def test_a_line_that_begins_with_dots_is_read_however_many_they_are(size_bytes: int) -> None:
    counts = (0, 3, 300, 30_000, 300_000, 1_000_000)
    text = b"".join(b"." * count + f"step {step} loss 0.5\n".encode() for step, count in enumerate(counts))
    lines, unread, steps = PrintedLines(), b"", list[int]()
    for start in range(0, len(text), size_bytes):
        unread += text[start : start + size_bytes]
        used, series = lines.feed(unread, 0.0)
        unread = unread[used:]
        steps += [step for step, _, _ in series.get("loss", ())]
    assert steps == [*range(len(counts))]


def test_names_that_never_end_are_cut_off() -> None:
    series_read = series_of("".join(f"step {n}: loss_{n}=0.5\n" for n in range(1000)))
    assert len(series_read) == MAX_TAGS


@pytest.mark.parametrize(
    "piece", ["step ", "a b c d ", "1" * 50, "loss=", "loss 2.", "{'a':", "[" * 30, "1/", "| ", "Epoch 1 "]
)
def test_no_line_takes_long(piece: str) -> None:
    line = f"Epoch 1 [1/2] step 5 {piece * (4000 // len(piece))}\n"
    assert any(reading_s(line) < 1 for _ in range(3))


def reading_s(line: str) -> float:
    """The CPU time that a line takes; a machine that stands still may make more of one than it was."""
    began = time.process_time()
    PrintedLines().feed(line.encode(), 0.0)
    return time.process_time() - began


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert PrintedLines().feed(b"\xff\xfe step 1 \x00 loss \xc3 2\nstep 2 loss 1.5\n", 0.0)[1]["loss"][-1] == (
        2,
        1.5,
        0.0,
    )
