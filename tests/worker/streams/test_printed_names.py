"""Names, groups, phases and lists in printed lines: every number is a series under its own name."""

from __future__ import annotations

import pytest

from tests.worker.streams.printed_series import bar, series_of, told_by, values_of
from worker.streams.printed import TOTAL_EPOCHS_TAG


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("step 3 train-loss: 0.5 train-acc: 0.4", {"train/loss": 0.5, "train/acc": 0.4}),
        ("Epoch 3 Train-accuracy=0.5 Validation-cross-entropy=0.4", {"train/accuracy": 0.5, "val/cross_entropy": 0.4}),
        ("step 3 zero-shot-top1: 0.25\tzero-shot-top5: 0.5\tR@1: 0.2",
         {"zero_shot_top1": 0.25, "zero_shot_top5": 0.5, "r@1": 0.2}),
        ("step 3: loss(train)=0.5 loss(val)=0.7 loss(ce)=0.1", {"train/loss": 0.5, "val/loss": 0.7, "loss_ce": 0.1}),
        ("step 3: loss=0.5 lr(1e-4): 0.5 norm (1e3) = 2.5", {"loss": 0.5, "lr(1e-4)": 0.5, "norm(1e3)": 2.5}),
        ("step 3 | 'loss' = 0.5 | \"top-1\" : 0.4", {"loss": 0.5, "top_1": 0.4}),
        ("step 3: D loss: 0.5, G loss: 0.7", {"d_loss": 0.5, "g_loss": 0.7}),
        ("step 3: loss: 0.5, temperature scale: 2.5", {"loss": 0.5, "temperature_scale": 2.5}),
        ("step 3: loss[ce=0.5, kl=0.1] aux[loss=0.2]", {"loss/ce": 0.5, "loss/kl": 0.1, "aux/loss": 0.2}),
        ("step 3: train[loss=0.5, acc=0.4], val[loss=0.7, acc=0.3]",
         {"train/loss": 0.5, "train/acc": 0.4, "val/loss": 0.7, "val/acc": 0.3}),
        ("Epoch 3 | train: loss=0.5 acc=0.4 | val: loss=0.7 acc=0.3",
         {"train/loss": 0.5, "train/acc": 0.4, "val/loss": 0.7, "val/acc": 0.3}),
        ("Epoch 3, validation: loss=0.7, acc=0.3", {"val/loss": 0.7, "val/acc": 0.3}),
        ("Epoch 3, val loss=0.7, lr=0.1", {"val/loss": 0.7, "lr": 0.1}),
        ("3epoch results: [train] loss=0.5, time=1 minute and 2.5 seconds, [valid] loss=0.7, time=1 hour, 1 second",
         {"train/loss": 0.5, "train/time_s": 62.5, "val/loss": 0.7, "val/time_s": 3601.0}),
        ("step 3: loss=0.5 lr=[0.1, 0.2, 0.3]", {"loss": 0.5, "lr": 0.1, "lr[1]": 0.2, "lr[2]": 0.3}),
        ("step 3: loss=0.5 lr: [1e-05 2e-05]", {"loss": 0.5, "lr": 1e-5, "lr[1]": 2e-5}),
        ("step 3: loss=0.5 lr={'base': 0.1, 'head': 0.2} psnr=21.5dB",
         {"loss": 0.5, "lr/base": 0.1, "lr/head": 0.2, "psnr": 21.5}),
        ("{'loss': 0.5, 'lr': [0.1, 0.2], 'step': 3}", {"loss": 0.5, "lr": 0.1, "lr[1]": 0.2}),
        ("iterations:3, train acc:0.5, train loss:0.7, train loss ctc:0.9",
         {"train/acc": 0.5, "train/loss": 0.7, "train/loss_ctc": 0.9}),
        ("epochs: 1 | iters: 3 | loss: 0.5", {"loss": 0.5}),
        ("step\t3\tloss\t0.5\tacc\t0.4", {"loss": 0.5, "acc": 0.4}),
        ("step=3,loss=0.5,acc=0.4,lr=1e-3", {"loss": 0.5, "acc": 0.4, "lr": 1e-3}),
        ("epoch=0/step=3/loss=0.5/acc=0.4", {"loss": 0.5, "acc": 0.4}),
        ("step 3 mAP@0.5:0.95: 0.4 mAP@0.5: 0.6", {"map@0.5_0.95": 0.4, "map@0.5": 0.6}),
        ("step 3 loss 0.5 | 12.5 utts/s | 3.25 TFLOPS", {"loss": 0.5, "utts_per_s": 12.5}),
        ("step 3 loss: 0.5 flops per GPU: 112.9TFLOPS", {"loss": 0.5, "flops_per_gpu": 112.9}),
    ],
)  # fmt: skip
def test_every_number_is_a_series_under_its_own_name(line: str, values: dict[str, float]) -> None:
    read = values_of(line)
    assert {tag: value for tag, (_, value) in read.items()} == pytest.approx(values)
    assert {step for step, _ in read.values()} == {3}


@pytest.mark.parametrize(
    "line",
    [
        "step 3: connecting to http://10.0.0.1:29500/loss=2.5",
        "step 3: torch 2.4.0+cu126, cuda: 12.1.3, 2026-01-02T03:04:05.678",
        "number of skipped iterations: 5 | number of nan iterations: 0",
        "maximum iterations: 500, momentum: 0.9",
        "model-00001-of-00002.safetensors:  45%|████▌     | 450M/1.00G [00:10<00:12, 45.0MB/s]",
        "Loading shard 3 of 8:  45%|████▌     | 9/20 [00:10<00:12, 1.50it/s]",
        "1 epoch = 2640 batches; training for 10 epochs",
    ],
)
def test_what_only_looks_like_a_value_is_none(line: str) -> None:
    assert series_of(f"{line}\n") == {}


# -- bars whose titles hold the values ---------------------------------------------------------
def titled(step: int, of: int, title: str) -> str:
    return bar(step, of, "", f"{title}: ").replace(", ]", "]")


@pytest.mark.parametrize(
    ("title", "tags"),
    [
        ("{epoch}|{batch}|Loss: {loss}", {"loss"}),
        ("Epoch {epoch} loss {loss} acc {acc}%", {"loss", "acc"}),
        ("[train] loss: {loss}, lr: 1e-05", {"train/loss", "train/lr"}),
        ("loss={loss:.1e}", {"loss"}),
    ],
)
def test_a_bars_title_that_is_set_before_its_batch_counts_is_read(title: str, tags: set[str]) -> None:
    text = ""
    for epoch in range(2):
        text += bar(0, 5, "").replace(", ]", "]")
        for batch in range(5):
            loss = 1 - epoch / 2 - batch / 16
            named = title.format(epoch=epoch, batch=5 * epoch + batch, loss=loss, acc=50 + batch)
            text += titled(batch, 5, named) + titled(batch + 1, 5, named)
    series = series_of(text + "\n")
    assert series.keys() - {"it_per_s", "train/it_per_s"} == tags
    (loss_tag,) = [tag for tag in tags if tag.endswith("loss")]
    assert [step for step, _ in series[loss_tag]] == [*range(1, 11)]
    assert series[loss_tag][0][1] == 1.0 and series[loss_tag][5][1] == pytest.approx(0.5)


def test_a_bar_that_begins_with_what_it_showed_last_stays_where_it_counts() -> None:
    text = ""
    for epoch in range(2):
        if epoch:
            text += bar(0, 3, "train_loss=0.7", f"Epoch {epoch}: ")
        for step in (1, 2, 3):
            text += bar(step, 3, f"train_loss={1 - (3 * epoch + step) / 10:.1f}", f"Epoch {epoch}: ")
    steps = {value: step for step, value in series_of(text + "\n")["train/loss"]}
    assert steps == {0.9: 1, 0.8: 2, 0.7: 3, 0.6: 4, 0.5: 5, 0.4: 6}


# -- epochs ------------------------------------------------------------------------------------
def test_a_validation_and_an_epochs_mean_do_not_overwrite_the_training() -> None:
    text = ""
    for epoch in (1, 2, 3):
        for batch in (0, 5, 10):
            text += f"Epoch {epoch}, batch {batch}, loss[loss=0.{batch:02}, over 5.0 frames. ], tot_loss[loss=0.5]\n"
        text += f"Epoch {epoch}, validation: loss=0.9{epoch}, over 9.0 frames. \nEpoch {epoch} done, loss=0.8{epoch}\n"
    series = series_of(text)
    assert series["loss"] == [(step, step % 15 / 100) for step in (0, 5, 10, 15, 20, 25, 30, 35, 40)]
    assert [value for _, value in series["val/loss"]] == [0.91, 0.92, 0.93]
    assert series["epoch/loss"] == [(10, 0.81), (25, 0.82), (40, 0.83)] and len(series["tot_loss"]) == 9


def test_headers_without_values_tell_the_epochs_that_ended() -> None:
    told = told_by("".join(f"Epoch {epoch}/3\nsome work\n" for epoch in (1, 2, 3)))
    assert told[TOTAL_EPOCHS_TAG] == [(0, 3.0)] and [value for _, value in told["epoch"]] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("line", "epochs"),
    [
        ("Epoch 2/8 loss 0.5", 8.0),
        ("Epoch 2 of 8: loss 0.5", 8.0),
        ("Epoch [2/8], Step [10/60], loss: 0.5", 8.0),
        ("Epoch 2/8\n100/200 [======>.......] - loss: 0.5", 8.0),
        ("Epoch 2/8 loss 0.5:  35%|███       | 7/20 [00:05<00:05,  2.00it/s]", 8.0),
        ("Epoch 20/8 loss 0.5", None),
        ("Epoch 2 loss 0.5", None),
    ],
)
def test_the_number_of_all_epochs_is_known_where_it_is_printed(line: str, epochs: float | None) -> None:
    points = told_by(f"{line}\n").get(TOTAL_EPOCHS_TAG)
    assert (points[0][1] if points else None) == epochs
