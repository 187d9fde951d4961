"""What scripts print becomes series; what only looks like numbers does not."""

from __future__ import annotations

import math
import time
import tracemalloc
from pathlib import Path

import pytest

from worker.streams.printed import EPOCH_TAG, MAX_TAGS, PrintedLines, PrintedTail
from worker.streams.printed_line import clean


def told_by(text: str) -> dict[str, list[tuple[int, float]]]:
    """All points of a whole output: tag -> [(step, value)]."""
    used, series = PrintedLines().feed(text.encode(), 0.0)
    assert used == len(text.encode())
    return {tag: [(step, value) for step, value, _ in points] for tag, points in series.items()}


def series_of(text: str) -> dict[str, list[tuple[int, float]]]:
    """What was measured: all but the epoch."""
    return {tag: points for tag, points in told_by(text).items() if tag != EPOCH_TAG}


def values_of(line: str) -> dict[str, tuple[int, float]]:
    return {tag: points[0] for tag, points in series_of(f"{line}\n").items()}


@pytest.mark.parametrize(
    ("line", "step", "values"),
    [
        ("iter 10: loss 2.3100, time 95.12ms, mfu 1.02%", 10, {"loss": 2.31, "time_s": 0.09512, "mfu": 1.02}),
        ("step 250: train loss 2.3100, val loss 2.4000", 250, {"train/loss": 2.31, "val/loss": 2.4}),
        ("iter_dt 5743.34ms; iter 4: train loss 2.49", 4, {"iter_dt_s": 5.74334, "train/loss": 2.49}),
        ("step=10 loss=2.5 lr=1e-4", 10, {"loss": 2.5, "lr": 1e-4}),
        ("Step: 1,200, loss: 10.89", 1200, {"loss": 10.89}),
        ("step 7, loss: nan, grad_norm: -inf", 7, {"loss": math.nan, "grad_norm": -math.inf}),
        ("epoch 2 step 7 loss nan lr inf", 7, {"loss": math.nan, "lr": math.inf}),
        ("epoch 3 | step 20 | loss 1.2e-3 | lr 1e-4", 20, {"loss": 1.2e-3, "lr": 1e-4}),
        ("step 10: kl=0.3, entropy=1.2", 10, {"kl": 0.3, "entropy": 1.2}),
        ("step 10: my_own_thing=0.25", 10, {"my_own_thing": 0.25}),
        ("[GPU0] Epoch 3 | Iter 20 | Train Loss 10.90", 20, {"train/loss": 10.9}),
        ("Epoch [1/10], Step [100/600], Loss: 0.5012", 100, {"loss": 0.5012}),
        ("[1,  2000] loss: 2.173", 2000, {"loss": 2.173}),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.297", 640, {"train/loss": 2.297}),
        ("Epoch 5/10 - loss: 0.2 - acc: 0.9", 5, {"loss": 0.2, "acc": 0.9}),
        ("====> Epoch: 1 Average loss: 164.2041", 1, {"average_loss": 164.2041}),
        ("Epoch: 0001 loss_train: 1.9 acc_train: 0.1 time: 0.1s", 1, {"loss_train": 1.9, "time_s": 0.1}),
        ("Epoch 3: acc 45%, 1.2k tokens/s", 3, {"acc": 45.0, "tokens_per_s": 1200.0}),
        ("Epoch 3: loss=tensor(2.3, device='cuda:0', grad_fn=<NllLossBackward0>)", 3, {"loss": 2.3}),
        ("Validation epoch 3: loss 0.4", 3, {"val/loss": 0.4}),
        ("Epoch 3 [val] loss=0.5", 3, {"val/loss": 0.5}),
        ("Episode 10\tLast reward: 26.00\tAverage reward: 16.00", 10, {"last_reward": 26.0}),
        (
            "Epoch: [0][ 20/391]\tTime  0.315 ( 0.372)\tData  0.002 ( 0.073)\tLoss 6.98e+00 (7.08e+00)\t"
            "Acc@1   1.56 (  0.08)\tAcc@5   6.25 (  0.55)",
            20,
            {"time": 0.315, "data": 0.002, "loss": 6.98, "acc@1": 1.56, "acc@5": 6.25},
        ),
        (
            "Epoch: [0]  [ 103/5005]  eta: 4:43:31  lr: 0.1  img/s: 13.62  loss: 6.8536 (6.9458)  max mem: 3524",
            103,
            {"lr": 0.1, "img/s": 13.62, "loss": 6.8536, "max_mem": 3524.0},
        ),
        (
            "| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 10.33 | loss  7.26 | ppl  1420.90",
            200,
            {"lr": 20.0, "ms/batch": 10.33, "loss": 7.26, "ppl": 1420.9},
        ),
        (
            "| end of epoch   1 | time: 33.02s | valid loss  5.79 | valid ppl   327.5",
            1,
            {"time_s": 33.02, "val/loss": 5.79, "val/ppl": 327.5},
        ),
        ("[0/25][3/782] Loss_D: 1.6 Loss_G: 5.2", 3, {"loss_d": 1.6, "loss_g": 5.2}),
        (
            " iteration       10/    1000 | consumed samples:          160 | elapsed time per iteration (ms): "
            "123.4 | learning rate: 1.500E-04 | global batch size:    16 | lm loss: 1.079E+01 | grad norm: 5.1 |",
            10,
            {
                "elapsed_time_per_iteration_s": 0.1234,
                "learning_rate": 1.5e-4,
                "lm_loss": 10.79,
                "grad_norm": 5.1,
            },
        ),
        (
            "step:  1  loss:  8.1  grad_norm:  1.2  memory: 1.5GiB(13.0%)  tps: 1,234  mfu: 1.02%",
            1,
            {"loss": 8.1, "grad_norm": 1.2, "memory_bytes": 1.5 * 2**30, "tps": 1234.0, "mfu": 1.02},
        ),
        (
            "2020-01-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 2000 loss=10.2, ppl=1180",
            100,
            {"loss": 10.2, "ppl": 1180.0},
        ),
        (
            "01/02 03:04:05 - mmengine - INFO - Epoch(train) [1][ 50/391]  lr: 1.0e-01 eta: 0:12:00 loss: 2.1",
            50,
            {"train/lr": 0.1, "train/loss": 2.1},
        ),
        ("Iter(train) [  50/1000]  lr: 1.0e-01  loss: 2.1", 50, {"train/lr": 0.1, "train/loss": 2.1}),
        (
            "[2024-01-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.001]",
            10,
            {"lr": 0.001, "skipped": 0.0},
        ),
        (
            "step 10/100 | epoch 1.25 | loss 2.3012 | lr 1.00e-01 | grad norm 0.52 | 12.4 k samples/s | "
            "12 ms (data 1.2 ms)",
            10,
            {"loss": 2.3012, "lr": 0.1, "grad_norm": 0.52, "samples_per_s": 12400.0, "data_s": 0.0012},
        ),
        (
            "{'loss': 2.3, 'grad_norm': 37.65, 'learning_rate': 5e-05, 'epoch': 0.1}",
            100,
            {"loss": 2.3, "grad_norm": 37.65, "learning_rate": 5e-5},
        ),
        ("{'loss': '2.3', 'grad_norm': 'nan', 'epoch': '0.1'}", 100, {"loss": 2.3, "grad_norm": math.nan}),
        ("{'eval_loss': 1.24, 'eval_runtime': 49.1, 'epoch': 1.0}", 1000, {"eval/loss": 1.24}),
        ('{"step": 10, "loss": NaN, "level": "INFO"}', 10, {"loss": math.nan}),
        (
            '{"train_lr": 0.0009, "train_loss": 4.01, "epoch": 49}',
            49,
            {"train/lr": 0.0009, "train/loss": 4.01},
        ),
        (
            "[INFO|trainer_tf.py:398] 2021-01-15 10:28:50,371 >> {'loss': 0.63, 'epoch': 0.08, 'step': 10}",
            10,
            {"loss": 0.63},
        ),
        ("INFO:root:Epoch 3: {'loss': 0.5, 'acc': 0.75}", 3, {"loss": 0.5, "acc": 0.75}),
        ("I0102 03:04:05.678901 1234 train.py:12] step 5 loss 1.5", 5, {"loss": 1.5}),
        ("2024-01-02 03:04:05.678 | INFO     | __main__:train:42 - step 5 loss 1.5", 5, {"loss": 1.5}),
        ("\x1b[1m\x1b[32mstep 5\x1b[0m loss \x1b[31m1.5\x1b[0m", 5, {"loss": 1.5}),
        ("[rank0]: step 5 loss 1.5", 5, {"loss": 1.5}),
        ("[default0]:step 5 loss 1.5", 5, {"loss": 1.5}),
        ("rank 0 | step 5 | loss 1.5", 5, {"loss": 1.5}),
    ],
)
def test_a_line_of_training_is_understood(line: str, step: int, values: dict[str, float]) -> None:
    found = values_of(line)
    told = {tag: found.get(tag, (None, None))[1] for tag in values}
    assert told == pytest.approx(values, nan_ok=True)
    assert {at for at, _ in found.values()} == {step}


@pytest.mark.parametrize(
    ("line", "tags"),
    [
        ("Epoch: [0][ 20/391]\tLoss 6.98 (7.08)", {"loss"}),
        ("[GPU0] Epoch 0 | Batchsize: 32 | Steps: 32 | loss 0.5", {"loss"}),
        ("Epoch 0: 22%|██▏  | 4/18 [00:17<01:02, 4.47s/it, v_num=3, loss=1.0]", {"loss", "it_per_s"}),
        ('{"step": 10, "loss": 1.0, "seed": 42, "world_size": 8}', {"loss"}),
        ("step 10: loss 2.3, eta 0:12:30, batch_size=32", {"loss"}),
    ],
)
def test_what_counts_or_configures_is_no_metric(line: str, tags: set[str]) -> None:
    assert set(values_of(line)) == tags


@pytest.mark.parametrize(
    "line",
    [
        # banners and plans
        "tokens per iteration will be: 16,384",
        "found vocab_size = 65 (inside data/shakespeare_char/meta.pkl)",
        "number of parameters: 10.65M",
        "num decayed parameter tensors: 50, with 124,354,560 parameters",
        "1 epoch = 2640 batches",
        "training for 10 epochs, 1000 steps each",
        "  Total optimization steps = 1,875",
        "  Num Epochs = 3",
        "[GPU0] Epoch 3 | Batchsize: 32 | Steps: 63",
        "GPU available: True (cuda), used: True",
        "loss function: CrossEntropyLoss",
        "step 100: saved in folder 3",
        "Epoch 00005: adjusting learning rate of group 0 to 1.0000e-03.",
        # configuration
        "n_layer=2",
        "Overriding: max_iters = 2000",
        "lr: 0.1",
        "learning_rate = 6e-4 # max learning rate",
        "warmup_steps: 100, lr: 0.001",
        "Namespace(batch_size=64, epoch=0, lr=0.01, loss_weight=1.0)",
        "TrainingArguments(step=1, learning_rate=5e-05, logging_steps=500, loss=0.0)",
        "{'lr': 0.1, 'epoch': 10, 'batch_size': 32, 'model': 'resnet18'}",
        '{"epoch": 90, "momentum": 0.9, "weight_decay": 1e-4}',
        "python train.py --step 10 --lr 0.1 --loss 0.5",
        "  (0-11): 12 x Block( (ln_1): LayerNorm((768,), eps=1e-05, elementwise_affine=True)",
        "epoch=10 lr=0.1 batch_size=32 momentum=0.9",
        "Resuming from epoch 3, batch 20",
        # files, versions, times
        "saving checkpoint to out/step=100-loss=2.31.ckpt",
        "checkpoint saved: checkpoints/step_00000120.pt",
        "wrote /tmp/run/epoch=3/val_loss=0.53",
        "PyTorch 2.4.0, step 3.1.2, cuda 12.1",
        "step 3: torch 2.4.0",
        "Epoch 3, global step 120: 'val_loss' reached 0.53 (best 0.53), saving model to 'e.ckpt' as top 1",
        # failures
        '  File "/home/ana/train.py", line 41, step 3: loss 2.0',
        "ValueError: step 3: loss=nan",
        "torch.cuda.OutOfMemoryError: step 3: loss 1.0",
        "[rank0]: RuntimeError: epoch 3 loss 1.0",
        "/x/lr_scheduler.py:198: UserWarning: step 3, lr: 0.5",
        # bars of something else
        "Downloading: 45%|████▌     | 450M/1.00G [00:10<00:12, 45.0MB/s]",
        "Map: 100%|██████████| 1000/1000 [00:00<00:00, 12345.67 examples/s]",
        "Validation DataLoader 0:  45%|████▌     | 9/20 [00:01<00:01,  7.12it/s]",
        "  5%|▌         | 50/1000 [00:10<03:10,  5.00it/s]",
        # no step, no epoch
        "loss: 0.25 acc: 0.5",
        "Test set: Average loss: 0.0501, Accuracy: 9836/10000 (98%)",
        " *   Acc@1 45.312 Acc@5 80.100",
        # other ranks
        "[rank1]: step 5 loss 1.5",
        "[GPU3] Epoch 3 | loss 2.0",
        "rank 12 | step 5 | loss 1.5",
        "[1]: step 5 loss 1.5",
    ],
)
def test_no_metric_is_made_up(line: str) -> None:
    assert series_of(f"{line}\n") == {}


def test_lines_of_a_traceback_are_not_read() -> None:
    text = (
        "step 1: loss 2.0\n"
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/home/ana/train.py", line 41, in <module>\n'
        "[rank0]:     step = 5; loss = 3.0\n"
        "[rank0]:     ~~~~~^^^\n"
        "[rank0]: MyFailure: at step 5 loss 3.0\n"
        "step 6: loss 1.0\n"
    )
    assert series_of(text) == {"loss": [(1, 2.0), (6, 1.0)]}


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
    text = "".join(
        f"Train Epoch: {epoch} [{n}/60000 ({n // 600}%)]\tLoss: 0.5\n" for epoch in (1, 2) for n in (0, 640)
    )
    assert [step for step, _ in series_of(text)["train/loss"]] == [0, 640, 60000, 60640]


def test_what_an_epoch_line_says_stands_where_its_steps_ended() -> None:
    text = (
        "Epoch: [0][390/391] Loss 2.0 (2.0)\nEpoch 0 done: val_loss 1.5\nEpoch: [1][390/391] Loss 1.9 (2.0)\n"
    )
    assert series_of(text) == {"loss": [(390, 2.0), (781, 1.9)], "val/loss": [(390, 1.5)]}


def test_an_epoch_may_be_announced_by_a_line_of_its_own() -> None:
    keras = (
        "Epoch 1/2\n100/200 [======>.......] - ETA: 3s - loss: 0.5\n"
        "200/200 [==============] - 12s 30ms/step - loss: 0.4 - val_loss: 0.6\n"
        "Epoch 2/2\n\x1b[1m 100/200\x1b[0m \x1b[32m━━━━━━━━━━\x1b[0m 1s 9ms/step - accuracy: 0.9 - loss: 0.3\n"
    )
    found = series_of(keras)
    assert found["loss"] == [(100, 0.5), (200, 0.4), (300, 0.3)]
    assert found["val/loss"] == [(200, 0.6)]
    quickstart = (
        "Epoch 1\n-------------------------------\nloss: 2.303494  [   64/60000]\nloss: 2.29  [ 6464/60000]\n"
        "Test Error: \n Accuracy: 44.3%, Avg loss: 2.15\n\nEpoch 2\n-----\nloss: 2.1  [   64/60000]\n"
    )
    assert series_of(quickstart) == {"loss": [(64, 2.303494), (6464, 2.29), (60064, 2.1)]}


# -- progress bars -----------------------------------------------------------------------------


def bar(step: int, total: int, postfix: str, title: str = "") -> str:
    done = 100 * step // total
    return f"\r{title}{done:3}%|{'█' * (done // 10):10}| {step}/{total} [00:10<01:20, 10.00it/s, {postfix}]"


def test_a_bar_counts_when_it_is_overwritten() -> None:
    lines = PrintedLines()
    first, second = bar(1, 100, "loss=2.5").encode(), bar(2, 100, "loss=2.4").encode()
    used, series = lines.feed(first, 0.0)
    assert (used, series) == (1, {})
    used, series = lines.feed(first[used:] + second, 7.0)
    assert series == {"loss": [(1, 2.5, 7.0)], "it_per_s": [(1, 10.0, 7.0)]}
    assert used == len(first)


def test_the_last_picture_of_a_bar_counts_also_while_it_is_not_finished() -> None:
    text = bar(3, 18, "v_num=0, train_loss=9.0", "Epoch 0: ") + bar(
        4, 18, "v_num=0, train_loss=9.0", "Epoch 0: "
    )
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
    found = series_of(text + "\n")
    assert found["train/loss"] == [(1, 1.9), (2, 1.8), (3, 0.9), (4, 0.8)]
    assert found["val/loss"] == [(3, 0.5)]


def test_a_bar_that_begins_again_is_the_next_epoch() -> None:
    text = "".join(bar(step, 10, "loss=1.0") for _ in range(3) for step in (5, 10)) + "\n"
    assert [step for step, _ in series_of(text)["loss"]] == [5, 10, 15, 20, 25, 30]


def test_bars_of_training_and_validation_are_kept_apart() -> None:
    text = "".join(
        bar(10, 10, "loss=1.0", f"Epoch {epoch} [train]: ") + bar(4, 4, "loss=2.0", f"Epoch {epoch} [val]: ")
        for epoch in (1, 2)
    )
    found = series_of(text + "\n")
    assert found["train/loss"] == [(10, 1.0), (20, 1.0)]
    assert [value for _, value in found["val/loss"]] == [2.0]


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
    found = series_of(NANOGPT)
    assert found["loss"] == [(0, 4.2664), (10, 3.2435), (250, 2.0435)]
    assert found["train/loss"] == [(0, 4.2874), (250, 1.9654)]
    assert found["val/loss"] == [(0, 4.2823), (250, 2.0612)]
    assert set(found) == {"loss", "train/loss", "val/loss", "time_s", "mfu"}


HF_OUT = """\
{'loss': '1.653', 'grad_norm': '2.5', 'learning_rate': '1.39e-05', 'epoch': '0.5'}
{'eval_loss': '1.249', 'eval_runtime': '49.19', 'eval_samples_per_second': '119.4', 'epoch': '0.5'}
{'loss': '1.5', 'grad_norm': '2.0', 'learning_rate': '1.0e-05', 'epoch': '1'}
{'train_runtime': '12.3', 'train_samples_per_second': '97', 'train_loss': '1.57', 'epoch': '1'}
"""


def test_the_output_of_hf_trainer_has_epochs_for_steps() -> None:
    found = series_of(HF_OUT)
    assert found["loss"] == [(500, 1.653), (1000, 1.5)]
    assert found["eval/loss"] == [(500, 1.249)]
    bars = "".join(f"\r{n:3}%|██        | {n}/100 [00:10<01:30,  5.00it/s]" for n in range(0, 100, 10))
    assert series_of(bars + "\n") == {}


# -- bytes -------------------------------------------------------------------------------------


def test_any_cut_of_the_bytes_gives_the_same_points() -> None:
    data = (NANOGPT + bar(1, 9, "loss=1.0") + bar(2, 9, "loss=0.5") + "\r\nEpoch 3: loss é 1\n").encode()
    whole = PrintedLines().feed(data, 0.0)[1]
    for size in (1, 7, 64, 500):
        lines, found, at, seen = PrintedLines(), {}, 0, 0
        while seen < len(data):
            seen = min(len(data), seen + size)
            used, series = lines.feed(data[at:seen], 0.0)
            at += used
            for tag, points in series.items():
                found.setdefault(tag, []).extend(points)
        assert found == whole and at == len(data), size


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


def test_names_that_never_end_are_cut_off() -> None:
    found = series_of("".join(f"step {n}: loss_{n}=0.5\n" for n in range(1000)))
    assert len(found) == MAX_TAGS


@pytest.mark.parametrize(
    "piece", ["step ", "a b c d ", "1" * 50, "loss=", "loss 2.", "{'a':", "[" * 30, "1/", "| ", "Epoch 1 "]
)
def test_no_line_takes_long(piece: str) -> None:
    line = f"Epoch 1 [1/2] step 5 {piece * (4000 // len(piece))}\n"
    began = time.perf_counter()
    PrintedLines().feed(line.encode(), 0.0)
    assert time.perf_counter() - began < 1


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert PrintedLines().feed(b"\xff\xfe step 1 \x00 loss \xc3 2\nstep 2 loss 1.5\n", 0.0)[1]["loss"][
        -1
    ] == (
        2,
        1.5,
        0.0,
    )


# -- the log file ------------------------------------------------------------------------------


def test_a_log_is_read_on_from_where_the_server_is_with_the_steps_it_had(tmp_path: Path) -> None:
    log = tmp_path / "rank0.err"
    first = "".join(bar(step, 10, "loss=1.0") for step in (5, 10)) + bar(5, 10, "loss=0.9") + "\n"
    log.write_text(first)
    tail = PrintedTail(log, clock=lambda: 5.0)
    assert [step for step, _, _ in tail.read().series["loss"]] == [5, 10, 15]
    with log.open("a") as file:
        file.write(bar(10, 10, "loss=0.8") + "\n")
    restarted = PrintedTail(log, offset=tail.offset, clock=lambda: 9.0)
    for reader in (tail, restarted):
        found = reader.read()
        assert (found.start, found.end) == (len(first.encode()), log.stat().st_size)
        assert [step for step, _, _ in found.series["loss"]] == [20]


def test_a_log_is_read_to_its_very_end_when_the_run_is_over(tmp_path: Path) -> None:
    log = tmp_path / "rank0.out"
    log.write_text("step 1 loss 2.0\nstep 2 loss 1.0")
    tail = PrintedTail(log, clock=lambda: 5.0)
    assert tail.read().series == {"loss": [(1, 2.0, 5.0)]}
    assert tail.read().end == 16
    tail.final = True
    assert tail.read().series == {"loss": [(2, 1.0, 5.0)]}
    assert tail.offset == log.stat().st_size


def test_going_back_reads_the_same_again(tmp_path: Path) -> None:
    log = tmp_path / "rank0.out"
    log.write_text("epoch 1 step 5 loss 2.0\nepoch 2 step 5 loss 1.0\n")
    tail = PrintedTail(log, clock=lambda: 5.0)
    tail.read()
    tail.offset = 24
    assert tail.read().series == {"loss": [(10, 1.0, 5.0)], "epoch": [(10, 2.0, 5.0)]}


def test_a_log_that_grows_faster_than_it_is_read_is_read_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.streams.printed.MAX_BEHIND_BYTES", 1000)
    monkeypatch.setattr("worker.streams.printed.RECALL_BYTES", 100)
    log = tmp_path / "rank0.out"
    log.write_text("".join(f"step {step} loss 1.0\n" for step in range(1000)))
    tail = PrintedTail(log)
    found = tail.read()
    assert (found.start, found.end, found.series) == (0, log.stat().st_size - 100, {})
    assert "no series are read" in (found.notice or "")
    assert [step for step, _, _ in tail.read().series["loss"]] == [995, 996, 997, 998, 999]
    assert tail.offset == log.stat().st_size


def test_a_log_that_is_gone_says_so(tmp_path: Path) -> None:
    found = PrintedTail(tmp_path / "none").read()
    assert (found.start, found.end) == (0, 0) and "could not be read" in (found.notice or "")


def test_a_prefix_is_stripped_as_often_as_it_stands_there() -> None:
    assert clean("[rank0]: 2024-01-02 03:04:05,678 - INFO - step 1") == "step 1"
    assert clean("[rank1]: step 1") is None
