"""One printed line: what is a metric, and what only looks like one."""

from __future__ import annotations

import math

import pytest

from domain.series.printed_pattern import clean
from tests.worker.streams.printed_series import series_of, values_of


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
    values_read = values_of(line)
    shown = {tag: values_read.get(tag, (None, None))[1] for tag in values}
    assert shown == pytest.approx(values, nan_ok=True)
    assert {at for at, _ in values_read.values()} == {step}


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
def test_counter_or_setting_is_no_metric(line: str, tags: set[str]) -> None:
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


def test_a_prefix_is_stripped_as_often_as_it_stands_there() -> None:
    assert clean("[rank0]: 2024-01-02 03:04:05,678 - INFO - step 1") == "step 1"
    assert clean("[rank1]: step 1") is None
