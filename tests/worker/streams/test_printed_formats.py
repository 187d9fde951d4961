"""Every format of the table gives what it says, and LOGGERS names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.streams.printed_formats import FORMATS, Format
from tests.worker.streams.printed_series import series_of, told_by
from worker.streams.printed import TOTAL_STEPS_TAG, PrintedLines


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_a_format_gives_its_series(format: Format) -> None:
    series = series_of(f"{format.example}\n")
    assert {tag: series[tag][-1] for tag in format.gives} == {
        tag: (format.step, pytest.approx(value)) for tag, value in format.gives.items()
    }
    assert not {"eta", "train/eta", "val/eta", "day"} & series.keys()


def test_documents_name_every_format() -> None:
    page = " ".join((Path(__file__).parents[3] / "docs/LOGGERS.md").read_text().split())
    assert [format.name for format in FORMATS if format.name not in page] == []


def test_timms_epochs_follow_one_another_with_a_validation_at_each_end() -> None:
    text = ""
    for epoch in range(2):
        for i in (0, 10, 19):
            text += f"Train: {epoch} [{i:>4d}/20 ({5 * i:>3.0f}%)]  Loss: {1 - epoch / 2:#.3g} (0.9)  LR: 1.000e-03\n"
        for i in (0, 4):
            text += f"Test: [{i:>4d}/4]  Time: 0.050 (0.050)  Loss:  {epoch + i / 10:>7.4f} (0.5)  Acc@1: 40.0 (39.0)\n"
    series = series_of(text)
    assert [step for step, _ in series["train/loss"]] == [0, 10, 19, 20, 30, 39]
    assert series["val/loss"] == [(19, 0.4), (39, 1.4)]


def test_a_validation_that_counts_its_own_batches_stands_at_the_trainings_step() -> None:
    text = "".join(
        f"Epoch [{epoch}][{i}/40]\tlr: 0.01, eta: 1 day, 12:59:34, loss: 0.5\n" for epoch in (3, 4) for i in (20, 40)
    )
    series = series_of(text + "Epoch(val) [4][5]\tbbox_mAP: 0.4, bbox_mAP_s: -1.000\nIter(val) [64]\tmIoU: 0.5\n")
    assert [step for step, _ in series["loss"]] == [100, 120, 140, 160]
    assert series["val/bbox_map_s"] == [(160, -1.0)] and series["val/miou"] == [(160, 0.5)]


def test_lines_that_begin_to_count_again_go_on() -> None:
    text = "".join(f"step {step}: loss 1.0\n" for _ in range(3) for step in range(20))
    assert [step for step, _ in series_of(text)["loss"]] == list(range(60))


def test_a_validation_that_was_cut_off_counts_at_the_end() -> None:
    lines = PrintedLines()
    data = b"Train: 0 [  19/20 (100%)]  Loss: 0.9 (1.0)\nTest: [   2/4]  Loss: 0.7 (0.7)\n"
    assert "val/loss" not in lines.feed(data, 0.0)[1]
    assert lines.feed(b"", 1.0, final=True)[1] == {"val/loss": [(19, 0.7, 1.0)]}


def test_columns_of_two_groups_keep_apart_and_only_the_row_of_all_classes_counts() -> None:
    text = (
        "  Epoch  GPU_mem  box_loss  Instances\n"
        "  1/5  1.2G  1.2  16:  50%|█████     | 10/20 [00:05<00:02,  4.50it/s]\n"
        "  1/5  1.2G  1.1  16: 100%|██████████| 20/20 [00:05<00:00,  4.50it/s]\n"
        "  Class  Images  Box(P  R  mAP50)  Mask(P  R  mAP50)\n  all  8  0.1  0.2  0.3  0.4  0.5  0.6\n"
        "  dog  8  0.9  0.9  0.9  0.9  0.9  0.9\n"
    )
    series = series_of(text)
    assert series["box_loss"] == [(1, 1.1)]
    assert series["val/map50"] == [(1, 0.3)] and series["val/mask_map50"] == [(1, 0.6)]


@pytest.mark.parametrize(
    "text",
    [
        "epoch is over\n1 2 3\n",
        "Step one loss\nthis is 1\n",
        "Class size loss\ndog 12 0.5\n",
        "10/11 tests passed\n3/4: done\n",
    ],
)
def test_text_that_is_no_table_gives_nothing(text: str) -> None:
    assert series_of(text) == {}


@pytest.mark.parametrize(
    ("line", "total"),
    [
        ("step 10/1000 loss 0.5\n", 1000),
        ("Epoch [1/10], Step [100/600], Loss: 0.5\n", 6000),
        ("Iter(train) [ 100/1000]  loss: 0.45\n", 1000),
        ("step 10 loss 0.5\n", None),
        ("Epoch: [1][20/391] Loss 2.0 (2.1)\n", None),
    ],
)
def test_the_number_of_all_steps_is_known_where_it_is_printed(line: str, total: float | None) -> None:
    points = told_by(line).get(TOTAL_STEPS_TAG)
    assert (points[0][1] if points else None) == total
